"""scikit-learn's scalers in a svelto file: their numbers, from which the same scaler is made again.

Three scalers are known, the ones that a machine folds in (`scaling`). They are made by name from this table, and by no
other way. What else stands in front of a machine cannot be saved.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from svelto.io.parts import In, Out
from svelto.io.plain import ADVICE
from svelto.scaling import Scaling

# Each scaler's arrays of one number a feature.
SCALERS: Final[dict[str, tuple[type, tuple[str, ...]]]] = {
    "StandardScaler": (StandardScaler, ("mean_", "var_", "scale_")),
    "MinMaxScaler": (MinMaxScaler, ("min_", "scale_", "data_min_", "data_max_", "data_range_")),
    "MaxAbsScaler": (MaxAbsScaler, ("scale_", "max_abs_")),
}


def check_scaler(step: Any) -> None:
    """Refuse a transformer that is none of the three; a subclass may do anything."""
    if not any(type(step) is known for known, _ in SCALERS.values()):
        raise NotImplementedError(
            f"The {type(step).__name__} in front of the machine cannot be saved in a svelto file, which holds "
            f"{', '.join(SCALERS)} and no other transformer. {ADVICE} Or save what is behind it, and transform rows "
            "first."
        )


def write_scaler(out: Out, step: Any) -> None:
    """A fitted scaler."""
    check_scaler(step)
    name = type(step).__name__
    out.set(scaler=name, parameters=step.get_params(deep=False), n_features=int(step.n_features_in_))
    for array in SCALERS[name][1]:
        if getattr(step, array, None) is not None:
            out.put(array, getattr(step, array), "<f8")
    seen = np.asarray(step.n_samples_seen_)  # of data with gaps one number a feature
    out.set(rows_differ=seen.ndim > 0)
    out.put("n_samples_seen_", np.atleast_1d(seen), "<i8")
    if hasattr(step, "feature_names_in_"):
        out.set(names=[str(name) for name in step.feature_names_in_])


def read_scaler(part: In) -> Any:
    """The scaler again."""
    name = part.choice("scaler", tuple(SCALERS))
    kind, arrays = SCALERS[name]
    parameters = part.plain("parameters")
    known = kind().get_params(deep=False)
    if not isinstance(parameters, dict) or not parameters.keys() <= known.keys() | {"clip"}:
        part.fail(f"a {name} has no such parameters: {str(parameters)[:60]}")
    if name == "MinMaxScaler":
        _check_range(part, parameters.get("feature_range"))
    # A parameter that this scikit-learn does not know yet is one that changes nothing where it is False.
    step = kind(**{key: value for key, value in parameters.items() if key in known})
    step.copy = True  # whatever a file says, rows that somebody asks about are not written to
    width = part.count("n_features", 1)
    for array in arrays:
        found = part.floats(array, (width,), always=True) if part.has_array(array) else None
        setattr(step, array, None if found is None else np.array(found))
    if name != "StandardScaler" and any(getattr(step, array) is None for array in ("scale_", arrays[0])):
        part.fail(f"a {name} has no scale_ or min_")
    if name == "StandardScaler" and (
        (step.with_mean and step.mean_ is None) or (step.with_std and step.scale_ is None)
    ):
        part.fail("a StandardScaler has no mean_ or scale_")
    differ = part.flag("rows_differ")
    seen = part.array("n_samples_seen_", "<i8", (width if differ else 1,))
    step.n_samples_seen_ = np.array(seen) if differ else int(seen[0])
    step.n_features_in_ = width
    if "names" in part:
        step.feature_names_in_ = read_names(part, "names", width)
    return step


def _check_range(part: In, given: Any) -> None:
    fits = isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, int | float) for x in given)
    if not fits or not np.isfinite(given).all():
        part.fail(f"the feature_range of a scaler is {str(given)[:40]}")


def read_names(part: In, name: str, width: int | None) -> np.ndarray[Any, Any]:
    """Column names, as many as features."""
    names = part.plain(name)
    if not isinstance(names, list) or not all(type(text) is str for text in names):
        part.fail(f"{part.prefix}{name} is no list of text")
    if width is not None and len(names) != width:
        part.fail(f"{part.prefix}{name} has {len(names)} names for {width} features")
    return np.array(names, dtype=object)


def write_scaling(out: Out, scaling: Scaling) -> None:
    """Arrays, and the scaler that they were read from: it answers for rows that are not dense float64."""
    out.set(form=scaling.form, low=scaling.low, high=scaling.high)
    out.put("shift", scaling.shift, "<f8")
    out.put("factor", scaling.factor, "<f8")
    if scaling.transformer is not None:
        write_scaler(out.part("transformer"), scaling.transformer)


def read_scaling(part: In) -> Scaling:
    """The same scaling."""
    shift = part.floats("shift", (None,), always=True)
    transformer = read_scaler(part.part("transformer")) if "transformer" in part else None
    if transformer is not None and transformer.n_features_in_ != len(shift):
        part.fail(f"the scaler has {transformer.n_features_in_} features, its arrays {len(shift)}")
    low, high = part.number("low"), part.number("high")
    if not low <= high:
        part.fail(f"a scaler clips to [{low}, {high}]")
    return Scaling(
        part.choice("form", ("divide", "multiply")),
        shift,
        part.floats("factor", shift.shape, always=True),
        low,
        high,
        transformer,
    )
