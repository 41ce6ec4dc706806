"""accelerate(): choose a method, build it, return a Predictor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Real
from os import PathLike
from time import perf_counter
from typing import Any, Final

from svelto._options import check_choice
from svelto._threads import check_n_jobs
from svelto.assemble import assemble, read_options
from svelto.auto import choose_engine
from svelto.auto_options import read_auto_options
from svelto.engine_reports import exact_report
from svelto.engines.bounded import build_bounded, read_bounded_options
from svelto.engines.exact import build_exact
from svelto.machine import KernelMachine
from svelto.predictor import Predictor

METHODS: Final = ("auto", "exact", "bounded", "hinges", "taylor_tree", "sv_tree", "reduced_set")
APPROXIMATE: Final = ("hinges", "taylor_tree", "sv_tree", "reduced_set")


def accelerate(
    model: Any,
    X: Any = None,
    *,
    method: str = "auto",
    agreement: float | None = 0.999,
    confidence: float = 0.95,
    X_calibration: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    **method_options: Any,
) -> Predictor:
    """Make a fast predictor of a trained kernel machine.

    Parameters
    ----------
    model : estimator, Pipeline, KernelMachine or path
        A fitted scikit-learn model (see `KernelMachine.from_sklearn`), a machine, or the path of a LIBSVM model file.
    X : array-like, optional
        Unlabelled rows like those to come (the training rows will do, but for a promise about objects of a Python
        kernel or about rows of a precomputed one); "exact" needs none, and to "bounded" they are a help.
    method : {"auto", "exact", "bounded", "hinges", "taylor_tree", "sv_tree", "reduced_set"}, default="auto"
        "exact" evaluates the whole sum and gives the labels of the float64 machine. "bounded" gives the same labels and
        stops a sum where the rest cannot change them: for few features and many support vectors, or for kernel
        functions that take long. "hinges" evaluates a few dozen bent planes, fitted to the machine's scores,
        "taylor_tree" routes a row by dot products to a leaf with a linear model, "sv_tree" by some ten kernel values to
        a leaf that makes a score of them (any kernel on any objects, for kernels that take long), "reduced_set" sums
        over few vectors that stand in for many; these four send rows they are not sure about to the exact engine.
        "auto" tries those that serve the machine, on these rows and on this computer, and takes the fastest that keeps
        the promise.
    agreement : float or None, default=0.999
        Share of labels that must agree with the exact machine, on data like the calibration rows. 1.0: only what is
        proven is settled without the exact engine ("taylor_tree" with the rbf kernel). None: nothing is sent on, and
        nothing promised. An exact method keeps any value.
    confidence : float, default=0.95
        Confidence at which the agreement is promised.
    X_calibration : array-like, optional
        Rows like those to come that the machine was not trained on, for choosing and checking thresholds. Default: rows
        held out of X, or, where X holds the training rows, stand-ins made of them.
    n_jobs : int, optional
        Threads; None uses every thread that OpenMP's limits allow, 1 is single-threaded.
    random_state : int, RandomState instance or None
        For methods that draw at random; "exact" does not.
    **method_options
        Options of the method. "auto": those of `AutoOptions` (``batch_size``, ``max_bytes``, ``time_budget``,
        ``tolerance``, ``precision``). "exact": ``precision`` ("auto", "float32", "float64"), the arithmetic of scores;
        labels are those of the float64 machine. "bounded": those of `BoundedOptions` (``bound``, ``save``,
        ``n_lists``, ``n_references``, ``shared``). "hinges": those of `HingeOptions` (``n_hinges``, ``answers``,
        ``oracle_rows``, ``max_epochs``, ``draw``) and ``next_stage``. "taylor_tree": those of `TreeOptions`
        (``leaf_size``, ``fit``, ``oracle_rows``, ``max_leaves``, ``max_depth``, ``max_bytes``, ``split``,
        ``farthest``) and ``next_stage`` ("auto", "reduced_set" or None: what stands between the stage and the exact
        engine). "reduced_set": those of
        `ReducedSetOptions` (``n_basis``, ``basis``, ``coefficients``, ``weighting``, ``ridge``, ``max_iter``,
        ``oracle_rows``). "sv_tree": those of `SVTreeOptions` (``tree``, ``max_evals``, ``min_rows``, ``linear``,
        ``candidates``, ``shared``, ``prior_rows``, ``look_ahead``, ``prune``, ``n_starts``, ``scale``,
        ``oracle_rows``). All four: ``tolerance``, the ``|error|`` of a regressor that counts as agreement.

    Returns
    -------
    Predictor

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> import svelto
    >>> X, y = load_iris(return_X_y=True)
    >>> svc = SVC().fit(X, y)
    >>> fast = svelto.accelerate(svc, method="exact")
    >>> bool((fast.predict(X) == svc.predict(X)).all())
    True
    """
    check_request(method, agreement, confidence, n_jobs, method_options)
    if method in APPROXIMATE:
        machine = read_any(model)
        cascade, report = assemble(
            machine,
            X,
            method=method,
            agreement=agreement,
            confidence=confidence,
            X_calibration=X_calibration,
            n_jobs=n_jobs,
            random_state=random_state,
            options=method_options,
        )
        return Predictor(machine, cascade, report, n_jobs)
    if method == "bounded":
        machine = read_any(model)
        bounded, report = build_bounded(machine, X, method_options, n_jobs, random_state)
        return Predictor(machine, bounded, report, n_jobs)
    started = perf_counter()
    machine = read_any(model)
    if method == "auto":
        chosen, report = choose_engine(
            machine,
            X,
            agreement=agreement,
            confidence=confidence,
            X_calibration=X_calibration,
            n_jobs=n_jobs,
            random_state=random_state,
            options=read_auto_options(method_options),
        )
        return Predictor(machine, chosen, report, n_jobs)
    engine = build_exact(machine, method_options.get("precision", "auto"))
    return Predictor(machine, engine, exact_report(machine, engine, started), n_jobs)


def check_request(
    method: str, agreement: float | None, confidence: float, n_jobs: int | None, method_options: Mapping[str, Any]
) -> None:
    """Refuse what is wrong for every model. `Accelerated` asks before it trains, which may take hours."""
    if method not in METHODS:
        raise ValueError(f"Unknown method {method!r}. Expected one of {', '.join(METHODS)}.")
    _check_share("agreement", agreement, none_allowed=True)
    _check_share("confidence", confidence, none_allowed=False)
    check_n_jobs(n_jobs)
    if method in APPROXIMATE:
        read_options(method, method_options)
    elif method == "bounded":
        read_bounded_options(method_options)
    elif method == "auto":
        read_auto_options(method_options)
    else:
        _check_exact_options(method_options)


def read_any(model: Any) -> KernelMachine:
    """Read whatever the user has: a machine, a path, or an estimator."""
    if isinstance(model, KernelMachine):
        return model
    if isinstance(model, (str, PathLike)):
        return KernelMachine.from_libsvm(os.fspath(model))
    return KernelMachine.from_sklearn(model)


def _check_exact_options(options: Mapping[str, Any]) -> None:
    unknown = [name for name in options if name != "precision"]
    if unknown:
        raise TypeError(f"method='exact' has no option {unknown[0]!r}; it has: precision.")
    check_choice("precision", options.get("precision", "auto"), ("auto", "float32", "float64"))


def _check_share(name: str, value: float | None, *, none_allowed: bool) -> None:
    if value is None and none_allowed:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0.0 < value <= 1.0:  # type: ignore[operator]
        expected = "a number in (0, 1]" + (" or None" if none_allowed else "")
        raise ValueError(f"{name} is {value!r}; expected {expected}.")
