"""export_onnx: a predictor as an ONNX graph of standard operators.

`onnx_plan` says what of a predictor is written, `onnx_cascade` puts its parts together, `onnx_model` gives them inputs
and outputs. The graph is run beside the predictor before anything is written (`onnx_measure`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from svelto._options import check_choice
from svelto._rowfiles import write_atomically
from svelto.export.c import model_words, promise_words, version
from svelto.export.measure import Agreement
from svelto.export.onnx_graph import DTYPES
from svelto.export.onnx_measure import measure
from svelto.export.onnx_model import make_model, wants_scores
from svelto.export.onnx_plan import plan_of
from svelto.report import Report

# Rows whose score is within rounding are few. Where more labels than this differ, no promise is carried over.
LEAST_AGREEMENT: Final = 0.999


@dataclass(frozen=True)
class OnnxExport:
    """What was written.

    Attributes
    ----------
    path : Path
        The model.
    dtype : str
        Of its input and its numbers.
    method : str
        What of the predictor it holds: stages, and "exact" for the whole sum.
    promise : {"exact", "statistical", "none"}
        What its labels are worth: the predictor's promise, or none where the labels measured speak against it.
    outputs : tuple of str
        Names of its outputs.
    file_bytes : int
        Size of the file.
    agreement : Agreement
        Its answers beside the predictor's and the machine's.
    """

    path: Path
    dtype: str
    method: str
    promise: str
    outputs: tuple[str, ...]
    file_bytes: int
    agreement: Agreement

    def __str__(self) -> str:
        facts = [
            ("model", str(self.path)),
            ("method", self.method),
            ("promise", self.promise),
            ("outputs", ", ".join(self.outputs)),
            ("size", f"{self.file_bytes:,} bytes, {self.dtype}"),
        ]
        facts += [("measured", line) for line in self.agreement.lines()]
        return "\n".join(f"{name:<9}{value}" for name, value in facts)


def export_predictor(
    predictor: Any,
    path: str | PathLike[str],
    *,
    dtype: str = "float32",
    scores: bool | None = None,
    X: Any = None,
) -> OnnxExport:
    """Write a predictor; see `Predictor.export_onnx`."""
    _check_onnx()
    check_choice("dtype", dtype, tuple(DTYPES))
    if scores is not None and not isinstance(scores, bool):
        raise ValueError(f"scores is {scores!r}; expected True, False or None.")
    plan = plan_of(predictor)
    model = make_model(plan, dtype, wants_scores(plan, scores))
    agreement = measure(predictor, model.SerializeToString(), X, dtype)
    promise = _kept_promise(predictor.report, agreement)
    facts = {
        "written by": f"svelto {version()}",
        "model": model_words(plan.machine),
        "method": plan.method,
        "promise": _promise_words(promise, predictor.report, dtype),
        "measured": "; ".join(agreement.lines()),
    }
    model.doc_string = "\n".join(f"{name}: {words}" for name, words in facts.items())
    for name, words in facts.items():
        model.metadata_props.add(key=f"svelto {name}", value=words)
    data = model.SerializeToString()
    target = Path(path)
    with write_atomically(target) as file:
        file.write(data)
    names = tuple(output.name for output in model.graph.output)
    return OnnxExport(target, dtype, plan.method, promise, names, len(data), agreement)


def _kept_promise(report: Report, agreement: Agreement) -> str:
    """The predictor's promise, unless what was measured of the graph speaks against it."""
    if report.promise == "none" or agreement.predictor is None or not agreement.n_rows:
        return report.promise
    least = 1.0 if report.promise == "exact" else report.agreement or 1.0
    if agreement.predictor >= min(least, LEAST_AGREEMENT):
        return report.promise
    warnings.warn(
        f"{agreement.predictor:.4%} of the graph's labels on {agreement.n_rows} {agreement.rows} are those of the "
        "predictor: sums in this precision are too coarse for the machine, and the graph promises nothing. Use "
        "dtype='float64'; where that is given already, scale the features before training.",
        UserWarning,
        stacklevel=4,
    )
    return "none"


def _promise_words(promise: str, report: Report, dtype: str) -> str:
    """The promise in a sentence."""
    if promise != report.promise:
        return f"none: labels measured are not those of the predictor, whose promise is {report.promise}"
    if promise == "exact":
        kind = "single" if dtype == "float32" else "double"
        return (
            f"exact, to {kind} precision: labels are the float64 machine's, but for rows whose score is within the "
            f"rounding of sums in {kind} precision"
        )
    return promise_words(promise, report)


def _check_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError(
            "export_onnx needs the package onnx, which is not installed. Install it: pip install 'svelto[onnx]'."
        ) from None
