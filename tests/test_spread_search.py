"""Rows spread over workers: regions, and neighbours that are those of one index. The workers are this process."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from svelto._crew import Held
from svelto.kernels import Kernel
from svelto.training._local.neighbours import NeighbourIndex
from svelto.training._local.regions import Regions, radii, reaches
from svelto.training._local.spread_search import SpreadIndex
from svelto.training._local.train import TrainingData

RNG = np.random.default_rng(0)


class HomeCrew:
    """Workers that are this process."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers, self.n_threads = n_workers, 2 * n_workers

    def hold(self, makers):
        held = [Held(make) for make in makers]
        for each in held:
            each.future = each.make()
        return held

    def run(self, function, calls, progress=None):
        return [function(*(each.future if isinstance(each, Held) else each for each in call)) for call in calls]


def clouds(n: int, d: int = 4) -> np.ndarray:
    """Dense and thin places, binary features, copies."""
    X = RNG.normal(size=(n, d)) * np.where(np.arange(n) % 3, 1.0, 8.0)[:, None]
    X[:, -1] = RNG.integers(0, 2, size=n)
    X[:: max(1, n // 9)] = X[0]
    return X


def spread(X: np.ndarray, k: int, n_workers: int, kernel: Kernel | None = None) -> SpreadIndex:
    data = TrainingData(X, np.zeros(len(X), dtype=np.int32), None, None, 1.0)
    return SpreadIndex(HomeCrew(n_workers), data, kernel or Kernel("rbf", gamma=1.0), "auto", k, 1)


@pytest.mark.parametrize("n_regions", [1, 2, 3, 7, 16])
def test_regions_share_out_the_rows(n_regions):
    X = clouds(3000)
    regions = Regions.cut(X, n_regions)
    region = regions.region_of(X)
    sizes = np.bincount(region, minlength=n_regions)
    assert len(regions) == n_regions
    assert region.min() >= 0
    assert sizes.min() > 0.4 * len(X) / n_regions
    assert_array_equal(region[:: len(X) // 9], region[0])  # copies stay together
    strange = RNG.normal(size=(500, 4)) * 100.0  # every point of space has a region
    assert regions.region_of(strange).min() >= 0


def test_cuts_avoid_crowds():
    """A wide feature with rows everywhere, and a narrow one with a gap: the gap lends nothing."""
    X = np.column_stack([RNG.normal(size=4000) * 5.0, RNG.integers(0, 2, size=4000) + 0.1 * RNG.normal(size=4000)])
    regions = Regions.cut(X, 2, 0.1)
    assert np.isfinite(regions.lower).sum(axis=0).tolist() == [0, 1]
    assert [len(regions.lent(X, r, 0.1)) < 2200 for r in range(2)] == [True, True]
    assert np.isfinite(Regions.cut(X, 2, 3.0).lower).sum() == 1


def test_equal_rows_are_one_region():
    assert len(Regions.cut(np.ones((50, 3)), 4)) == 1
    assert len(Regions.cut(np.repeat([[0.0], [1.0]], 50, axis=0), 8)) == 2


def test_margin_and_lent_rows():
    """No row closer to a query than margin + reach is missing from what its region holds."""
    X = clouds(800)
    regions = Regions.cut(X, 6)
    region, reach = regions.region_of(X), 0.7
    for r in range(6):
        own, held = np.flatnonzero(region == r), regions.lent(X, r, reach)
        assert np.isin(own, held).all()
        assert (np.diff(held) > 0).all()
        margin = regions.margin(X[own], r)
        assert (margin >= 0.0).all()
        away = np.sqrt(((X[own][:, None] - np.delete(X, held, axis=0)[None]) ** 2).sum(axis=2))
        assert (away.min(axis=1, initial=np.inf) > margin + reach).all()


def test_reach_completes_most_neighbourhoods():
    X = RNG.normal(size=(30_000, 3))
    some, radius = radii(X, 100, 1)
    regions = Regions.cut(X, 4, float(np.median(radius)))
    reach = reaches(regions, some, radius)
    region = regions.region_of(X)
    for r in range(4):
        own = X[region == r][:1000]
        radius = np.sqrt(NeighbourIndex(X, n_jobs=1).query(own, 100)[1][:, -1])
        assert 0.8 < (radius <= reach[r] + regions.margin(own, r)).mean() < 0.97
    assert sum(len(regions.lent(X, r, reach[r])) for r in range(4)) < 1.5 * len(X)


@pytest.mark.parametrize("n_workers", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 30, 400])
def test_neighbours_are_those_of_one_index(n_workers, k):
    X = clouds(1200)
    index = spread(X, k, n_workers)
    for queries in (X, X + 0.1, RNG.normal(size=(200, 4)) * 50.0):
        nearest, sq_dist = index.query(queries, k)
        expected, expected_distance = NeighbourIndex(X, n_jobs=1).query(queries, k)
        assert_array_equal(nearest, expected)
        assert_array_equal(sq_dist, expected_distance)


@pytest.mark.parametrize("reach", [0.0, 1e-3])
def test_workers_around_are_asked(reach):
    """Rows that a worker lends too few of are found elsewhere, some of them by several workers."""
    X = clouds(900)
    index = spread(X, 40, 5)
    whole = index.query(X, 40)
    index.reach[:] = reach  # nothing is certain any more: every ball is looked at again
    again = index.query(X, 40)
    assert_array_equal(whole[0], again[0])
    assert_array_equal(whole[1], again[1])


def test_polynomial_kernels_ask_every_worker():
    X = clouds(500)
    kernel = Kernel("poly", gamma=0.3, degree=3, coef0=1.0)
    nearest, sq_dist = spread(X, 20, 3, kernel).query(X[:100], 20)
    expected, expected_distance = NeighbourIndex(X, kernel, n_jobs=1).query(X[:100], 20)
    assert_array_equal(nearest, expected)
    assert_array_equal(sq_dist, expected_distance)


@given(
    st.integers(1, 60), st.integers(1, 3), st.integers(1, 6), st.integers(1, 60), st.integers(1, 4), st.integers(0, 99)
)
@settings(max_examples=60, deadline=None)
def test_small_grids(n, d, n_workers, k, values, seed):
    """Few values a feature: copies and equal distances everywhere."""
    X = np.random.default_rng(seed).integers(0, values, size=(n, d)).astype(float)
    k = min(k, n)
    nearest, sq_dist = spread(X, k, n_workers).query(X, k)
    expected, expected_distance = NeighbourIndex(X, n_jobs=1).query(X, k)
    assert_array_equal(nearest, expected)
    assert_array_equal(sq_dist, expected_distance)
