"""Parameters of svelto's own estimators in a svelto file, and what scikit-learn notes about the rows of a fit."""

from __future__ import annotations

from typing import Any, Final

from sklearn.svm import SVC, NuSVC
from sklearn.utils.validation import check_is_fitted

from svelto.io.parts import In, Out
from svelto.io.plain import ADVICE
from svelto.io.saved_scaling import read_names

# Estimators that a parameter may hold: not fitted, made again from their own parameters.
KNOWN: Final = {"SVC": SVC, "NuSVC": NuSVC}


def write_parameters(out: Out, estimator: Any) -> None:
    """All parameters of a fitted estimator, its width and column names."""
    check_is_fitted(estimator, "classes_")
    inner: dict[str, str] = {}
    for name, value in estimator.get_params(deep=False).items():
        if hasattr(value, "get_params"):
            if not any(type(value) is known for known in KNOWN.values()):
                raise NotImplementedError(
                    f"The parameter {name} is a {type(value).__name__}; a svelto file holds {' and '.join(KNOWN)} as "
                    f"parameters, and no other estimator. {ADVICE}"
                )
            inner[name] = type(value).__name__
            value = value.get_params(deep=False)  # noqa: PLW2901
        out.set(**{f"parameter_{name}": value})
    out.set(estimators=inner, n_features=int(estimator.n_features_in_))
    if hasattr(estimator, "feature_names_in_"):
        out.set(feature_names=[str(name) for name in estimator.feature_names_in_])


def read_parameters(part: In, kind: type, n_jobs: int | None) -> Any:
    """An estimator with these parameters, width and names; nothing else of it is there yet."""
    inner = part.plain("estimators")
    names = kind().get_params(deep=False)
    if not isinstance(inner, dict) or not inner.keys() <= names.keys():
        part.fail(f"a {kind.__name__} has no such parameters: {str(inner)[:60]}")
    given = {name: part.plain(f"parameter_{name}") for name in names}
    for name, which in inner.items():
        known = KNOWN.get(which) if isinstance(which, str) else None
        if known is None or not isinstance(given[name], dict) or not given[name].keys() <= known().get_params().keys():
            part.fail(f"the parameter {name} is no estimator that svelto knows")
        assert known is not None
        given[name] = known(**given[name])
    if n_jobs is not None:
        given["n_jobs"] = n_jobs
    estimator = kind(**given)
    estimator.n_features_in_ = part.count("n_features", 1)
    if "feature_names" in part:
        names = read_names(part, "feature_names", part.count("n_features", 1))
        estimator.feature_names_in_ = names
    return estimator
