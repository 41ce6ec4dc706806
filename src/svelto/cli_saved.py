"""Model files of the command line: LIBSVM's, and svelto's own with everything that they may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import svelto
from svelto._rowfiles import RowFile, fit_width, read_rows
from svelto._typing import Rows
from svelto.io.file import is_svelto_file, read_file
from svelto.io.saved import load_stored
from svelto.machine import KernelMachine
from svelto.model_rows import rows_for


def open_machine(path: Path) -> KernelMachine:
    """The machine of a LIBSVM model file or of a svelto file."""
    if not is_svelto_file(path):
        return KernelMachine.from_libsvm(path)
    found = svelto.load(path)
    machine = getattr(found, "machine", found)
    if not isinstance(machine, KernelMachine):
        raise ValueError(
            f"{path} holds a {type(found).__name__}, which is fast already; expected a kernel machine, or a predictor."
        )
    return machine


def open_saved(path: Path, n_jobs: int | None) -> Any:
    """What a svelto file holds, ready to predict."""
    found = svelto.load(path, n_jobs=n_jobs)
    return svelto.accelerate(found, method="exact", n_jobs=n_jobs) if isinstance(found, KernelMachine) else found


def saved_rows(model: Any, data: Path, file_format: str | None) -> tuple[Rows, RowFile]:
    """Rows of a file for a model, which has the width that it has."""
    machine = getattr(model, "machine", None)
    if machine is not None and machine.kernel.name == "precomputed":
        return rows_for(machine, data, file_format)[1:]
    rows = read_rows(data, file_format)
    return fit_width(rows, model.n_features_in_), rows


def saved_answers(model: Any, X: Rows, probability: bool) -> tuple[Any, Any, Any]:
    """Predictions, and with probabilities also their matrix and labels; the label is that of `predict`."""
    n = X.shape[0]
    predictions = model.predict(X) if n else np.empty(0)
    if not probability:
        return predictions, None, None
    labels = getattr(model, "classes_", ["normal", "outlier"])
    return predictions, model.predict_proba(X) if n else np.empty((0, len(labels))), labels


def check_probabilities(model: Any, path: Path) -> None:
    """Refuse -b 1 for a model without probabilities."""
    if not hasattr(model, "predict_proba"):
        raise ValueError(f"{path} holds no probabilities. Use -b 0, or save a model that has them.")


def saved_facts(path: Path) -> dict[str, Any]:
    """What a svelto file holds, by name; all of it is read and checked on the way."""
    file = read_file(path)
    model = load_stored(file)
    facts: dict[str, Any] = {
        "file": f"{path} ({path.stat().st_size:,} bytes)",
        "format": f"svelto file, version {file.version}, by {file.made_by}; checksums right",
        "holds": type(model).__name__,
    }
    if isinstance(model, svelto.Predictor):
        facts |= {name: value for name, value in model.report.rows() if not name.startswith("tried")}
    machine = model if isinstance(model, KernelMachine) else getattr(model, "machine", None)
    if machine is not None:
        facts |= {"type": f"{machine.svm_type} ({machine.task})", "kernel": str(machine.kernel)}
        facts |= {"support vectors": f"{machine.n_sv:,}", "features": machine.n_features}
    else:
        facts["features"] = model.n_features_in_
    classes = machine.classes if machine is not None else model.classes_
    if classes is not None:
        facts["classes"] = f"{len(classes)}: {', '.join(str(label) for label in classes.tolist())}"
    return facts
