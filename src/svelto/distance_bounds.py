"""Kernels that decrease with a distance, and what is known of their values: the ground of ``method="bounded"``.

Such a kernel is ``k(x, s) = profile(dist(x, s))`` with a metric `dist`. A kernel value gives the distance back,
distances to a few vectors bound the distances to all others, and those bound the other kernel values. A `Bound` does
each step for numbers that carry rounding:

    value v      ->  distance in [inverse(v (1 + e)), inverse(v (1 - e))]
    distance in [low, high]  ->  value in [profile(high) (1 - e), profile(low) (1 + e)]

where `e` is the relative error of a value, three times over: for the value itself, for `profile` and for `inverse`.

Built in, with the distance in units that make gamma disappear:

    rbf                      profile exp(-t^2)    t = sqrt(gamma) ||x - s||
    exponential, laplacian   profile exp(-t)      t = gamma ||x - s||, and the same with the L1 norm

Other kernels are Python functions; `register_bound` says what profile they have.

Invariant: intervals contain the true distance, and every value that the kernel's own code may give, as long as that
code is as accurate as stated. Where nothing is known (a value below 1e-290, an inverse that is not a number) they are
as wide as needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from svelto._typing import FloatArray
from svelto.kernels import Kernel

UNIT: Final = 2.0**-53
# Values below this may have lost digits to underflow: they are only known to be small.
SMALLEST: Final = 1e-290
# A value that is off by more than this says too little about its distance.
LARGEST_PRECISION: Final = 1e-3

Profile = Callable[[Any], Any]


@dataclass(frozen=True)
class Bound:
    """A profile and its inverse, with the accuracy of the kernel values.

    Attributes
    ----------
    profile : callable
        Kernel value at a distance; vectorised, decreasing.
    inverse : callable
        Distance at a kernel value; vectorised.
    constant, slope : float
        A value v is off by at most a relative ``constant + slope * (-ln(v / profile(0)))``.
    positive_definite : bool
        Whether the kernel is an inner product in some space.
    top : float
        ``profile(0)``, the largest value and every vector's value with itself.
    """

    profile: Profile
    inverse: Profile
    constant: float
    slope: float = 0.0
    positive_definite: bool = True
    top: float = 1.0

    def error(self, values: FloatArray) -> FloatArray:
        """Relative error of computed kernel values."""
        share = np.clip(values / self.top, SMALLEST, 1.0)
        return np.asarray(self.constant - self.slope * np.log(share))

    @property
    def largest_error(self) -> float:
        """Largest absolute error of a value: ``x (-ln x)`` is at most 1/e, here 1/2."""
        return self.top * (self.constant + 0.5 * self.slope)

    def around(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest value that another evaluation of the same kernel values may give."""
        error = 2.0 * self.error(values)
        return np.where(values < SMALLEST, 0.0, values * (1.0 - error)), values * (1.0 + error) + SMALLEST

    def distances(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest distance that goes with computed kernel values."""
        error = 3.0 * self.error(values)
        upper = np.minimum(np.maximum(values * (1.0 + error), SMALLEST), self.top)
        low = np.asarray(self.inverse(upper), dtype=np.float64) * (1.0 - 8.0 * UNIT)
        lower = np.minimum(values, self.top) * (1.0 - error)
        high = np.asarray(self.inverse(np.maximum(lower, SMALLEST)), dtype=np.float64)
        high = np.where(lower < 2.0 * SMALLEST, np.inf, high * (1.0 + 8.0 * UNIT))
        return np.where(low >= 0.0, low, 0.0), np.where(high >= 0.0, high, np.inf)

    def values(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Least and largest computed kernel value at distances between `low` and `high`."""
        near = np.asarray(self.profile(low * (1.0 - 8.0 * UNIT)), dtype=np.float64)
        far = np.asarray(self.profile(high * (1.0 + 8.0 * UNIT)), dtype=np.float64)
        near = np.where(near >= 0.0, near, self.top)
        least = np.where(far >= 2.0 * SMALLEST, far * (1.0 - 3.0 * self.error(far)), 0.0)
        return least, near * (1.0 + 3.0 * self.error(near)) + 2.0 * SMALLEST


def _gauss(distance: Any) -> Any:
    return np.exp(-np.square(distance))


def _gauss_inverse(value: Any) -> Any:
    return np.sqrt(np.maximum(-np.log(value), 0.0))


def _decay(distance: Any) -> Any:
    return np.exp(-np.asarray(distance))


def _decay_inverse(value: Any) -> Any:
    return np.maximum(-np.log(value), 0.0)


_registered: dict[Any, Bound] = {}


def register_bound(
    function: Callable[[Any, Any], Any],
    *,
    profile: Profile,
    inverse: Profile,
    precision: float = 1e-12,
    positive_definite: bool = True,
) -> None:
    """Say that a kernel function decreases with a distance, so that ``method="bounded"`` can save evaluations of it.

    Labels stay exact only if what is said here is true; a few points are checked, no more is possible.

    Parameters
    ----------
    function : callable
        The kernel as the machine was trained with it: ``function(X, S)`` returns the matrix of
        ``profile(dist(x, s))``. `dist` must be a metric: zero for equal objects, symmetric, and with the triangle
        inequality. The value of a pair must not depend on what other pairs are asked for.
    profile : callable
        Kernel value at an array of distances. Decreasing wherever it is positive.
    inverse : callable
        Distance at an array of kernel values in (0, profile(0)].
    precision : float, default=1e-12
        Relative accuracy of the values of `function`, and of `profile` and `inverse` in terms of values.
    positive_definite : bool, default=True
        Whether the kernel is positive definite, as SVMs ask for. It allows the projection bound, which often saves
        most. Say False where it is not certain: a kernel made of an edit distance, for example, need not be.

    Examples
    --------
    >>> def kernel(X, S):
    ...     return np.exp(-np.abs(X[:, None, 0] - S[None, :, 0]))
    >>> svelto.register_bound(kernel, profile=lambda t: np.exp(-t), inverse=lambda v: -np.log(v))
    """
    if not callable(function):
        raise TypeError(f"register_bound needs a kernel function, got {function!r}.")
    try:
        hash(function)
    except TypeError:
        raise TypeError(
            f"register_bound got {function!r}, which is not hashable and so cannot be found again. Wrap it in a "
            "function."
        ) from None
    if isinstance(precision, bool) or not 0.0 <= float(precision) <= LARGEST_PRECISION:
        raise ValueError(
            f"precision is {precision!r}; expected a relative accuracy between 0 and {LARGEST_PRECISION:g}."
        )
    top = float(_called("profile", profile, np.zeros(1))[0])
    if not 0.0 < top < math.inf:
        raise ValueError(f"profile(0) is {top}; expected the positive value of a vector with itself.")
    # What NumPy's own exp and log may be off by is always allowed for.
    bound = Bound(profile, inverse, max(float(precision), 16 * UNIT), 0.0, bool(positive_definite), top)
    _check_profile(bound)
    _registered[function] = bound


def _called(name: str, function: Profile, at: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        result = np.asarray(function(at.copy()), dtype=np.float64)
    if result.shape != at.shape:
        raise ValueError(
            f"{name} returned an array of shape {result.shape} for {len(at)} numbers; expected {at.shape}. It must be "
            "vectorised."
        )
    return result


def _check_profile(bound: Bound) -> None:
    """Compare profile and inverse with each other, and the profile with what it must be, on a few points."""
    values = bound.top * np.array([1.0, 0.999, 0.9, 0.7, 0.5, 0.3, 0.1, 1e-2, 1e-4, 1e-8])
    distances = _called("inverse", bound.inverse, values)
    if not (distances >= 0.0).any():
        raise ValueError(f"inverse({values[4]:.6g}) is {distances[4]}; expected a distance, zero or more.")
    known = np.isfinite(distances)  # a profile that stays above some value has no distance for less
    if (distances[known] < 0.0).any() or (np.diff(distances[known]) < 0.0).any():
        at = int(np.flatnonzero(known)[0])
        raise ValueError(
            f"inverse must rise from 0 as the kernel value falls; at {values[known].tolist()} it is "
            f"{distances[known].tolist()} (first: {distances[at]:.6g})."
        )
    points = np.unique(np.concatenate([distances[known], 0.5 * (distances[known][1:] + distances[known][:-1])]))
    at_points = _called("profile", bound.profile, points)
    if not np.isfinite(at_points).all() or (at_points < 0.0).any():
        raise ValueError(
            f"profile gives {at_points.tolist()} at {points.tolist()}; expected finite numbers, zero or more."
        )
    if (np.diff(at_points) > 0.0).any():
        i = int(np.flatnonzero(np.diff(at_points) > 0.0)[0])
        raise ValueError(
            f"profile rises from {at_points[i]:.6g} to {at_points[i + 1]:.6g} between the distances {points[i]:.6g} "
            f"and {points[i + 1]:.6g}; expected a function that decreases."
        )
    back = _called("profile", bound.profile, distances[known])
    wrong = np.abs(back - values[known]) > 1.01 * bound.constant * values[known]
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"inverse does not invert profile: profile(inverse({values[known][i]:.6g})) is {back[i]:.17g}. Their "
            f"relative difference must be within precision={bound.constant:g}."
        )
    low, high = bound.distances(at_points)
    outside = ~((low <= points) & (points <= high)) & (at_points > 0.0)
    if outside.any():
        i = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"profile is flat around the distance {points[i]:.6g}: the value {at_points[i]:.6g} does not tell it from "
            f"{low[i]:.6g}. Expected a profile that decreases wherever it is positive."
        )


def bound_of(kernel: Kernel, n_features: int) -> Bound:
    """What is known of a kernel's values.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    n_features : int
        Features of a row, on which the rounding of built-in kernels depends.

    Raises
    ------
    NotImplementedError
        Where nothing is known.
    """
    # LIBSVM's exponent z is off by (d + 6) 2^-53 of itself, exp by a unit or two; sums of squares may also underflow.
    constant, slope = 8.0 * UNIT, 4.0 * (n_features + 8) * UNIT
    if kernel.name == "rbf":
        return Bound(_gauss, _gauss_inverse, constant + kernel.gamma * n_features * 2.0**-1070, slope)
    if kernel.name == "exponential":
        lost = kernel.gamma * math.sqrt(n_features) * 2.0**-535
        return Bound(_decay, _decay_inverse, constant + lost, slope)
    if kernel.name == "laplacian":
        return Bound(_decay, _decay_inverse, constant, slope)
    if kernel.name == "callable":
        return _bound_of_function(kernel)
    raise NotImplementedError(_message(kernel))


def _bound_of_function(kernel: Kernel) -> Bound:
    from svelto.io.sklearn import MatrixKernel

    function: Any = kernel.function
    if isinstance(function, MatrixKernel):  # what reading an SVC puts around the user's function
        if function.X_fit is not None:
            raise NotImplementedError(
                f"method='bounded' saves kernel evaluations, but {kernel} wants all training rows in every call. Use "
                "method='exact'."
            )
        function = function.function
    try:
        found = _registered.get(function)
    except TypeError:
        found = None
    if found is None:
        raise NotImplementedError(_message(kernel))
    return found


def _message(kernel: Kernel) -> str:
    return (
        "method='bounded' needs a kernel that decreases with a distance: rbf, exponential, laplacian, or a callable "
        f"registered with svelto.register_bound; this machine has {kernel}. Use method='exact'."
    )
