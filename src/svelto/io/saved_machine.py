"""A KernelMachine in a svelto file, and read from one.

The arrays are those of the machine; they are used where they lie in the mapped file, and their numbers are looked at
unless the file is only mapped. Kernels that are Python functions cannot be saved: a file holds no code.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import numpy as np
from scipy import sparse

from svelto.io.parts import MOST, In, Out
from svelto.io.plain import ADVICE, labels_from_plain, labels_to_plain
from svelto.io.saved_scaling import check_scaler, read_names, read_scaler, read_scaling, write_scaler, write_scaling
from svelto.kernels import KERNEL_NAMES, Kernel
from svelto.machine import N_DENSITY_MARKS, KernelMachine, Rule, Task
from svelto.probability import Calibration, Isotonic, PlattPairs, Sigmoid, Temperature

SAVED_KERNELS: Final = tuple(name for name in KERNEL_NAMES if name != "callable")


def check_machine(machine: KernelMachine) -> None:
    """Say what of a machine cannot be saved, before anything is written."""
    if machine.kernel.name == "callable":
        raise NotImplementedError(
            f"The kernel {machine.kernel} is a Python function, and a svelto file holds no code. {ADVICE}"
        )
    for step in machine.front:
        check_scaler(step)
    if machine.scaling is not None and machine.scaling.transformer is not None:
        check_scaler(machine.scaling.transformer)
    if machine.classes is not None:
        labels_to_plain(machine.classes)


def write_machine(out: Out, machine: KernelMachine) -> None:
    """All of a machine."""
    check_machine(machine)
    kernel = machine.kernel
    out.set(kernel=kernel.name, gamma=kernel.gamma, coef0=kernel.coef0, degree=int(kernel.degree))
    for name in ("task", "rule", "n_features", "single_output", "decision_function_shape", "break_ties", "noise_scale"):
        out.set(**{name: getattr(machine, name)})
    out.set(svm_type=machine.svm_type, source=machine.source)
    _write_vectors(out, machine)
    out.put("dual_coef", machine.dual_coef, "<f8")
    out.put("intercept", machine.intercept, "<f8")
    for name in ("vote_order", "n_support"):
        if getattr(machine, name) is not None:
            out.put(name, getattr(machine, name), "<i4")
    if machine.classes is not None:
        out.set_json("classes", labels_to_plain(machine.classes))
    if machine.density_marks is not None:
        out.put("density_marks", machine.density_marks, "<f8")
    if machine.platt is not None:
        out.set(iterate_two=bool(machine.platt.iterate_two))
        out.put("prob_a", machine.platt.a, "<f8")
        out.put("prob_b", machine.platt.b, "<f8")
    if machine.calibration is not None:
        _write_calibration(out.part("calibration"), machine.calibration)
    if machine.scaling is not None:
        write_scaling(out.part("scaling"), machine.scaling)
    for part, step in zip(out.parts("front", len(machine.front)), machine.front, strict=True):
        write_scaler(part, step)
    if machine.feature_names is not None:
        out.set(feature_names=[str(name) for name in machine.feature_names])


def _write_vectors(out: Out, machine: KernelMachine) -> None:
    vectors = machine.support_vectors
    if machine.kernel.name == "precomputed":
        out.put("support_columns", vectors, "<i8")
    elif sparse.issparse(vectors):
        out.set(width=int(vectors.shape[1]))
        write_csr(out, "support_vectors", vectors)
    else:
        out.put("support_vectors", vectors, "<f8")


def write_csr(out: Out, name: str, matrix: Any) -> None:
    """A canonical CSR matrix as three arrays."""
    wide = "<i8" if matrix.nnz > MOST else "<i4"
    out.put(f"{name}.data", matrix.data, "<f8")
    out.put(f"{name}.indices", matrix.indices, wide)
    out.put(f"{name}.indptr", matrix.indptr, wide)


def read_csr(part: In, name: str, n_rows: int, width: int) -> Any:
    """The matrix: columns of a row rise, and exist; both are looked at always, native code follows them."""
    data = part.floats(f"{name}.data", (None,))
    wide = "<i8" if len(data) > MOST else "<i4"
    indptr = part.starts(f"{name}.indptr", n_rows, len(data), dtype=wide)
    indices = part.whole(f"{name}.indices", (len(data),), 0, width - 1, dtype=wide)
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1  # allowed where a row begins, nowhere else
    if len(falls) and not np.isin(falls, indptr).all():
        part.fail(f"the columns of {part.prefix}{name} do not rise")
    matrix = sparse.csr_matrix((data, indices, indptr), shape=(n_rows, width), copy=False)
    matrix.has_canonical_format = True
    return matrix


def read_machine(part: In, *, always: bool = False) -> KernelMachine:
    """The same machine, on the arrays of the file; `always`: its numbers are looked at in any case."""
    kernel = read_kernel(part)
    front = tuple(read_scaler(step) for step in part.parts("front"))
    n_features = part.count("n_features", 1) if part.json("n_features") is not None else None
    dual_coef = part.array("dual_coef", "<f8", (None, None))
    n_rows, n_sv = dual_coef.shape
    if max(n_rows, n_sv) > MOST or n_rows < 1:
        part.fail(f"dual_coef has the shape {dual_coef.shape}")
    fields: dict[str, Any] = {
        "kernel": kernel,
        "support_vectors": _read_vectors(part, kernel, n_sv),
        "dual_coef": dual_coef,
        "intercept": part.floats("intercept", (None,), always=True),
        "task": part.choice("task", get_args(Task)),
        "rule": part.choice("rule", get_args(Rule)),
        "n_features": n_features,
        "single_output": part.flag("single_output"),
        "decision_function_shape": part.choice("decision_function_shape", ("ovr", "ovo")),
        "break_ties": part.flag("break_ties"),
        "noise_scale": None if part.json("noise_scale") is None else part.finite("noise_scale"),
        "svm_type": part.text("svm_type"),
        "source": part.text("source"),
        "front": front,
    }
    if "classes" in part:
        fields["classes"] = _read_only(labels_from_plain(part.json("classes")))
        n_classes = len(fields["classes"])
        fields["vote_order"] = part.whole("vote_order", (n_classes,), 0, max(n_classes - 1, 0))
        if part.has_array("n_support"):
            fields["n_support"] = part.whole("n_support", (n_classes,), 1, n_sv)
    if part.has_array("density_marks"):
        fields["density_marks"] = part.floats("density_marks", (N_DENSITY_MARKS,), always=True)
    if "iterate_two" in part:
        pairs = (len(fields["intercept"]),)
        a, b = part.floats("prob_a", pairs, always=True), part.floats("prob_b", pairs, always=True)
        fields["platt"] = PlattPairs(a, b, part.flag("iterate_two"))
    if "calibration" in part:
        n_classes = len(fields["classes"]) if "classes" in fields else 0
        fields["calibration"] = _read_calibration(part.part("calibration"), n_classes)
    if "scaling" in part:
        fields["scaling"] = read_scaling(part.part("scaling"))
    _check_front(part, fields)
    if "feature_names" in part:
        fields["feature_names"] = _read_only(read_names(part, "feature_names", fields["n_features"]))
    return KernelMachine._on(fields, read_values=part.verified or always)


def _check_front(part: In, fields: dict[str, Any]) -> None:
    """Rows keep their width on the way to the kernel: the scalers of a file change none."""
    front, kernel, vectors = fields["front"], fields["kernel"], fields["support_vectors"]
    n_features = fields["n_features"]
    if not front:
        if kernel.has_native_code and n_features is None:
            part.fail("the machine does not say how many features a row has")
        return
    widths = [step.n_features_in_ for step in front]
    if n_features is not None:
        widths.append(n_features)
    if kernel.has_native_code:
        widths.append(vectors.shape[1])
    if len(set(widths)) > 1:
        part.fail(f"the scalers in front of the machine, its rows and its support vectors differ in width: {widths}")
    fields["n_features"] = widths[0]
    if kernel.name == "precomputed" and vectors.max(initial=0) >= widths[0]:
        part.fail(f"a support column is {vectors.max()}, but rows behind the scalers have {widths[0]} kernel values")


def read_kernel(part: In) -> Kernel:
    """A kernel of those that have a name."""
    name = part.choice("kernel", SAVED_KERNELS)
    return Kernel(name, part.finite("gamma"), part.finite("coef0"), part.count("degree"))


def _read_vectors(part: In, kernel: Kernel, n_sv: int) -> Any:
    if kernel.name == "precomputed":
        return part.whole("support_columns", (n_sv,), 0, MOST, dtype="<i8")
    if part.has_array("support_vectors"):
        vectors = part.array("support_vectors", "<f8", (n_sv, None))
        if not 1 <= vectors.shape[1] <= MOST:
            part.fail(f"support_vectors has the shape {vectors.shape}")
        return vectors
    return read_csr(part, "support_vectors", n_sv, part.count("width", 1))


def _write_calibration(out: Out, calibration: Calibration) -> None:
    out.set(method=calibration.method)
    for part, one in zip(out.parts("calibrators", len(calibration.calibrators)), calibration.calibrators, strict=True):
        write_calibrator(part, one)


def _read_calibration(part: In, n_classes: int) -> Calibration:
    method = part.choice("method", ("sigmoid", "isotonic", "temperature"))
    calibrators = tuple(read_calibrator(one, (method,)) for one in part.parts("calibrators"))
    wanted = 1 if n_classes == 2 or method == "temperature" else n_classes
    if len(calibrators) != wanted or n_classes < 2:
        part.fail(f"there are {len(calibrators)} calibrators for {n_classes} classes")
    return Calibration(method, calibrators)


def write_calibrator(out: Out, one: Sigmoid | Isotonic | Temperature) -> None:
    """What turns scores into probabilities."""
    if isinstance(one, Sigmoid):
        out.set(kind="sigmoid", a=one.a, b=one.b)
    elif isinstance(one, Temperature):
        out.set(kind="temperature", beta=one.beta)
    else:
        out.set(kind="isotonic")
        out.put("x", one.x, "<f8")
        out.put("y", one.y, "<f8")


def read_calibrator(part: In, kinds: tuple[str, ...]) -> Any:
    """One of the given kinds."""
    kind = part.choice("kind", kinds)
    if kind == "sigmoid":
        return Sigmoid(part.finite("a"), part.finite("b"))
    if kind == "temperature":
        return Temperature(part.finite("beta"))
    x = part.floats("x", (None,), always=True)
    return Isotonic(x, part.floats("y", x.shape, always=True))


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array
