"""What a user would pick instead: the machine itself, two faster runtimes for it, and two models that need no machine.

Rivals get what helps them: float32 rows, dense or CSR rows by what is faster, the best block length; conversion is not
timed. Models are trained on the training rows alone, once, and kept beside the machines. A rival that is not installed
raises ImportError, which is a gap in the table.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from svelto._typing import Rows
from svelto.reproduce._common import OtherLoad
from svelto.reproduce._measure import Form, as_form
from svelto.suite.contender import Contender, Predict
from svelto.suite.machines import SEED, Case, draw, kept
from svelto.suite.pair_vote import TRIAL_ROWS as BLOCK_ROWS
from svelto.suite.row_form import (
    IN_WORDS,
    asked_rows,
    can_be_dense,
    faster_form,
    natural_form,
    nystroem_in_form,
    svc_in_form,
    training_rows,
)

# Nystroem: how many components are tried, on how many training rows, a quarter of them held out. The smallest number
# is taken whose accuracy there is within the margin of the best.
COMPONENTS: Final = (100, 300, 1000)
TRIAL_ROWS: Final = 8_000
MARGIN: Final = 0.002
TREES: Final = 200
# intelex: rows of the small machines that show in which form it is faster.
FORM_TRAIN: Final = 2_000


def build_svc(case: Case) -> Contender:
    """The model itself; it has one thread."""
    form = faster_form(case, lambda form: svc_in_form(case.svc, form).predict)
    model = svc_in_form(case.svc, form)
    return Contender(
        "SVC.predict",
        asked_rows(case, form),
        lambda n_threads: model.predict,
        len(pickle.dumps(model)),
        case.fit_seconds,
        note=f"one thread, {IN_WORDS[form]}",
        labels=case.labels if model is case.svc else None,
    )


def build_intelex(case: Case) -> Contender:
    """scikit-learn-intelex; its threads are set by `timing.thread_count`."""
    form = _intelex_form(case)
    trained = train_intelex(case, form)
    model = trained.model
    note = f"own training, {len(model.support_):,} support vectors, float32, {IN_WORDS[form]}"
    return Contender(
        "intelex",
        asked_rows(case, form, np.float32),
        lambda n_threads: model.predict,
        len(pickle.dumps(model)),
        trained.seconds,
        note,
        facts={"build_other_load": trained.other_load},
    )


def train_intelex(case: Case, form: Form | None = None) -> Trained:
    """The same SVC, trained again on float32 rows: oneDAL cannot take over another model of many classes.

    The form of the rows is that of the case where none is given.
    """
    form = natural_form(case) if form is None else form
    name = f"{case.key}-intelex{version('scikit-learn-intelex')}-{form}-timed"
    trained = _trained(case.folder, name, lambda: _fit_intelex(case, case.X_train, case.y_train, form))
    _check_intelex(trained.model)
    return trained


def _intelex_form(case: Case) -> Form:
    """The faster form, by two small machines: oneDAL ties a model to the form that it was trained on."""
    X, y = draw(case.X_train, case.y_train, FORM_TRAIN)

    def predict_in(form: Form) -> Predict:
        model = _fit_intelex(case, X, y, form)
        _check_intelex(model)
        predict: Predict = model.predict
        return predict

    return faster_form(case, predict_in, np.float32)


def _fit_intelex(case: Case, X: Rows, y: NDArray[Any], form: Form) -> Any:
    """Train; the class is imported by name, so that scikit-learn itself stays as it is."""
    from sklearnex.svm import SVC as IntelexSVC  # noqa: N811 - the same name as scikit-learn's

    model = IntelexSVC(C=case.parameters["C"], gamma=case.parameters["gamma"])
    return model.fit(as_form(X.astype(np.float32), form), y)


def _check_intelex(model: Any) -> None:
    if not hasattr(model, "_onedal_estimator"):
        raise ImportError("scikit-learn-intelex falls back to scikit-learn here")


def build_onnxruntime(case: Case) -> Contender:
    """The machine as a graph of matrix products and exponentials, dense float32 rows."""
    import onnx  # noqa: F401 - named first, so that a missing one is named
    import onnxruntime  # noqa: F401

    from svelto.suite.onnx_machine import OnnxMachine, write_model

    rows = _dense(case.X_test, np.float32)
    trial = _dense(training_rows(case, BLOCK_ROWS), np.float32)  # the block's length is chosen on them
    started = perf_counter()
    nbytes = len(write_model(case.machine).SerializeToString())
    made = cache(lambda n_threads: OnnxMachine(case.machine, n_threads, trial))
    block = made(2).block
    seconds = perf_counter() - started
    note = f"float32, blocks of {block} rows{', rows made dense' if case.is_sparse else ''}"
    return Contender("onnxruntime", rows, lambda n_threads: made(n_threads).predict, nbytes, seconds, note)


def build_nystroem(case: Case) -> Contender:
    """A linear SVM on a sample of the kernel's features, with the machine's own C and gamma."""

    def make(n_components: int) -> Pipeline:
        sampled = Nystroem(gamma=case.parameters["gamma"], n_components=n_components, random_state=SEED)
        return make_pipeline(sampled, LinearSVC(C=case.parameters["C"], random_state=SEED))

    def train() -> tuple[Pipeline, int]:
        X = _dense(case.X_train, np.float64) if can_be_dense(case.X_train) else case.X_train
        chosen = _enough_components(make, *draw(X, case.y_train, TRIAL_ROWS))
        return make(chosen).fit(X, case.y_train), chosen

    settings = _stamp(COMPONENTS, TRIAL_ROWS, MARGIN, SEED)
    trained = _trained(case.folder, f"{case.key}-nystroem-{settings}-sklearn{sklearn.__version__}", train)
    whole, chosen = trained.model
    form = faster_form(case, lambda form: nystroem_in_form(whole, form).predict)
    model = nystroem_in_form(whole, form)
    note = f"{chosen} components, {IN_WORDS[form]}; threads of its BLAS"
    return Contender(
        "Nystroem + LinearSVC",
        asked_rows(case, form),
        lambda n_threads: model.predict,
        len(pickle.dumps(model)),
        trained.seconds,
        note,
        facts={"build_other_load": trained.other_load},
    )


def _enough_components(make: Callable[[int], Pipeline], X: Rows, y: NDArray[Any]) -> int:
    """The smallest number of components that is as good as more of them, on rows held out of the training rows."""
    own, held, y_own, y_held = train_test_split(X, y, test_size=0.25, stratify=y, random_state=SEED)
    tried = [n for n in COMPONENTS if n == COMPONENTS[0] or n <= len(y_own) // 2]
    found = {n: float(make(min(n, len(y_own))).fit(own, y_own).score(held, y_held)) for n in tried}
    best = max(found.values())
    return min(n for n, accuracy in found.items() if accuracy >= best - MARGIN)


def build_lightgbm(case: Case) -> Contender:
    """Boosted trees with default parameters; they know nothing of the machine."""
    from lightgbm import LGBMClassifier

    def train() -> Any:
        model = LGBMClassifier(n_estimators=TREES, random_state=SEED, n_jobs=2, verbose=-1)
        return model.fit(case.X_train, case.y_train)

    # One model for all machines of a data set: its name must not hold their parameters.
    data = case.key.rsplit("-", 1)[1]
    name = f"{case.name}-{data}-lightgbm{version('lightgbm')}-{_stamp(TREES, SEED)}"
    trained = _trained(case.folder, name, train)
    booster, classes = trained.model.booster_, np.asarray(trained.model.classes_)

    def with_threads(n_threads: int) -> Predict:
        def predict(rows: Rows) -> NDArray[Any]:
            share = booster.predict(rows, num_threads=n_threads)
            chosen = share.argmax(axis=1) if share.ndim == 2 else (share > 0.5).astype(np.intp)
            labels: NDArray[Any] = classes[chosen]
            return labels

        return predict

    return Contender(
        "LightGBM",
        case.X_test,
        with_threads,
        len(booster.model_to_string()),
        trained.seconds,
        f"{TREES} rounds, default parameters",
        facts={"build_other_load": trained.other_load},
    )


RIVALS: Final[dict[str, Callable[[Case], Contender]]] = {
    "SVC.predict": build_svc,
    "intelex": build_intelex,
    "onnxruntime": build_onnxruntime,
    "Nystroem + LinearSVC": build_nystroem,
    "LightGBM": build_lightgbm,
}


class Trained(NamedTuple):
    """A model, the seconds of its training, and cores that other processes kept busy meanwhile."""

    model: Any
    seconds: float
    other_load: float | None


def _trained(folder: Path | None, name: str, train: Callable[[], Any]) -> Trained:
    """A model that is kept beside the machines."""

    def make() -> tuple[Any, float, float | None]:
        load, started = OtherLoad(), perf_counter()
        model = train()
        return model, perf_counter() - started, load.cores()

    return Trained(*kept(folder, name, make))


def _stamp(*settings: Any) -> str:
    """A few letters that change with the settings a model is trained with."""
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:8]


def _dense(X: Rows, dtype: Any) -> NDArray[Any]:
    X = X.astype(dtype)
    return np.ascontiguousarray(X.toarray() if sparse.issparse(X) else X)
