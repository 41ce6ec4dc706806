"""Dense or CSR rows: each rival is asked in the form that it answers faster.

The form is chosen by the clock, on training rows. A trained model is the same function in both forms, but scikit-learn
ties it to the form of its training rows; `svc_in_form` and `nystroem_in_form` write the same numbers in the other one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC

from svelto._inputs import n_rows_of
from svelto._typing import Rows
from svelto.reproduce._measure import Form, as_form
from svelto.suite.contender import Predict
from svelto.suite.machines import SEED, Case
from svelto.suite.own import N_JOBS
from svelto.suite.timing import fastest, thread_count

# Training rows that the two forms are timed on; more where these are answered so soon that the call itself counts.
FORM_ROWS, MORE_FORM_ROWS = 300, 3_000
SHORT_CALL: Final = 0.02
# Bytes of a dense copy (float64) beyond which rows stay sparse.
MOST_DENSE_BYTES: Final = 2 * 10**9
IN_WORDS: Final[dict[Form, str]] = {"dense": "dense rows", "csr": "CSR rows"}


def natural_form(case: Case) -> Form:
    """Form of the case's own rows."""
    return "csr" if case.is_sparse else "dense"


def can_be_dense(X: Rows) -> bool:
    """Whether the rows are dense already, or a dense copy has a bearable size."""
    return not sparse.issparse(X) or 8 * X.shape[0] * X.shape[1] <= MOST_DENSE_BYTES


def possible_forms(case: Case) -> tuple[Form, ...]:
    """Forms that a rival may be asked in."""
    return ("dense", "csr") if can_be_dense(case.X_train) and can_be_dense(case.X_test) else ("csr",)


def training_rows(case: Case, n_rows: int) -> Rows:
    """So many of the training rows, drawn at random: files may be sorted by class."""
    order = np.random.default_rng(SEED).permutation(n_rows_of(case.X_train))
    return case.X_train[order[:n_rows]]


def faster_form(case: Case, predict_in: Callable[[Form], Predict], dtype: Any = np.float64) -> Form:
    """The form in which a rival answers faster: best of three calls each, in turns, on training rows.

    Parameters
    ----------
    case : Case
        The machine and its rows; test rows are not looked at.
    predict_in : callable
        Gives `predict` for rows of a form.
    dtype : dtype
        Of the rows.

    Returns
    -------
    form : {"dense", "csr"}
    """
    forms = possible_forms(case)
    if len(forms) == 1:
        return forms[0]
    predicts = {form: predict_in(form) for form in forms}

    def shown(n_rows: int) -> dict[Form, Rows]:
        rows = training_rows(case, n_rows).astype(dtype)
        return {form: as_form(rows, form) for form in forms}

    with thread_count(N_JOBS, N_JOBS):
        rows = shown(FORM_ROWS)
        if _longest(predicts, rows) < SHORT_CALL:
            rows = shown(MORE_FORM_ROWS)
        form: Form = fastest(forms, lambda form: predicts[form](rows[form]))
    return form


def _longest(predicts: dict[Form, Predict], rows: dict[Form, Rows]) -> float:
    """Seconds of the slower form, after a call for warming up."""
    seconds = []
    for form, predict in predicts.items():
        predict(rows[form])
        started = perf_counter()
        predict(rows[form])
        seconds.append(perf_counter() - started)
    return max(seconds)


def asked_rows(case: Case, form: Form, dtype: Any = np.float64) -> Rows:
    """The test rows as a rival is asked about them."""
    return as_form(case.X_test.astype(dtype), form)


def svc_in_form(svc: SVC, form: Form) -> SVC:
    """The same machine, for rows of a form: scikit-learn's SVC reads the form that it was trained on."""
    if svc._sparse == (form == "csr"):
        return svc
    twin = copy.copy(svc)
    twin._sparse = form == "csr"
    twin.support_vectors_ = as_form(svc.support_vectors_, form)
    for name in ("dual_coef_", "_dual_coef_"):
        coef = getattr(svc, name)
        setattr(twin, name, _all_stored(coef) if form == "csr" else coef.toarray())
    return twin


def _all_stored(values: NDArray[Any]) -> sparse.csr_matrix:
    """CSR with zeros stored too: LIBSVM counts on one coefficient for each vector and pair of classes."""
    n, width = values.shape
    columns, starts = np.tile(np.arange(width), n), np.arange(n + 1) * width
    return sparse.csr_matrix((values.ravel(), columns, starts), shape=values.shape)


def nystroem_in_form(model: Pipeline, form: Form) -> Pipeline:
    """The same pipeline with its sample of rows in a form: products of equal forms are the fast ones."""
    sampled, *rest = (step for _, step in model.steps)
    sampled = copy.copy(sampled)
    sampled.components_ = as_form(sampled.components_, form)
    names = [name for name, _ in model.steps]
    return Pipeline(list(zip(names, (sampled, *rest), strict=True)))
