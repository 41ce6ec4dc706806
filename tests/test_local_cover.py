"""The k'-neighbourhood cover: batches against paper S4's Algorithm 1, written down step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from svelto.kernels import Kernel
from svelto.training._local import cover as cover_module
from svelto.training._local.copies import Copies
from svelto.training._local.cover import extend_cover, find_cover
from svelto.training._local.neighbours import NeighbourIndex

POLY = Kernel("poly", gamma=0.5, coef0=1.0, degree=2)


def algorithm_1(X, neighbours_of, order, k, k_prime, model_of=None, centres=()):
    """S4, Algorithm 1, lines 4 to 20; line 11 points all copies of the centre to its model."""
    model_of = dict(model_of or {})
    centres, models = list(centres), []
    for index in order:
        if index in model_of:
            continue
        local_points = neighbours_of(index, k)
        for row in range(len(X)):
            if (X[row] == X[index]).all():
                model_of.setdefault(row, len(centres))
        for j in range(k_prime):
            model_of.setdefault(local_points[j], len(centres))
        centres.append(index)
        models.append(local_points)
    return centres, models, model_of


def neighbours_in(index):
    return lambda row, k: index.query(index.X[[row]], k)[0][0].tolist()


def check_cover(cover, X, index, order, k, k_prime):
    centres, models, model_of = algorithm_1(X, neighbours_in(index), order.tolist(), k, k_prime)
    assert_array_equal(cover.centres, centres)
    assert_array_equal(cover.neighbours, models)
    assert_array_equal(cover.centre_of_row, [model_of[row] for row in range(len(X))])
    assert (cover.centres.dtype, cover.neighbours.dtype, cover.centre_of_row.dtype) == (np.int32,) * 3
    assert (cover.k, cover.k_prime) == (k, k_prime)


def random_rows(rng, n, d, places):
    """Rows on a grid of so many places, with copies; anywhere for places=0."""
    return rng.integers(0, places, size=(n, d)).astype(float) if places else rng.normal(size=(n, d))


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 120), places=st.integers(0, 4), batch=st.integers(1, 50))
def test_centres_are_those_of_the_sequential_rule(seed, n, places, batch):
    rng = np.random.default_rng(seed)
    X = random_rows(rng, n, int(rng.integers(1, 4)), places)
    k = int(rng.integers(1, n + 1))
    k_prime = int(rng.integers(1, k + 1))
    index, order = NeighbourIndex(X), rng.permutation(n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover_module, "SMALLEST_BATCH", batch)
        cover = find_cover(index, order, k, k_prime)
    check_cover(cover, X, index, order, k, k_prime)
    assert cover.n_asked >= len(cover.centres)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("batch", [1, 17, 1000])
def test_batches_and_threads_do_not_matter(batch, n_jobs, monkeypatch):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(600, 3)), rng.integers(0, 2, size=(200, 3))])
    index, order = NeighbourIndex(X), rng.permutation(800)
    expected = find_cover(index, order, 30, 10)
    monkeypatch.setattr(cover_module, "SMALLEST_BATCH", batch)
    monkeypatch.setattr(cover_module, "LARGEST_BATCH", batch)
    cover = find_cover(index, order, 30, 10, n_jobs=n_jobs)
    for name in ("centres", "neighbours", "centre_of_row"):
        assert_array_equal(getattr(cover, name), getattr(expected, name))
    if batch == 1:
        assert cover.n_asked == len(cover.centres)
    check_cover(cover, X, index, order, 30, 10)


@pytest.mark.parametrize("kernel", [None, POLY], ids=str)
@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_matrix])
def test_other_kernels_and_sparse_rows(storage, kernel):
    rng = np.random.default_rng(1)
    X = rng.integers(-1, 2, size=(200, 4)).astype(float)
    index, order = NeighbourIndex(storage(X), kernel), rng.permutation(200)
    check_cover(find_cover(index, order, 12, 4), X, index, order, 12, 4)


def test_copies_by_the_thousand_share_a_centre():
    rng = np.random.default_rng(2)
    X = np.vstack([np.tile([1.0, 2.0], (5000, 1)), rng.normal(size=(200, 2))])
    cover = find_cover(NeighbourIndex(X), rng.permutation(len(X)), 60, 20)
    assert len(np.unique(cover.centre_of_row[:5000])) == 1
    assert len(cover.centres) < 60


def test_one_neighbourhood_covers_all():
    X = np.random.default_rng(3).normal(size=(40, 2))
    order = np.random.default_rng(4).permutation(40)
    cover = find_cover(NeighbourIndex(X), order, 40, 40)
    assert_array_equal(cover.centres, order[:1])
    assert not cover.centre_of_row.any()
    each = find_cover(NeighbourIndex(X), order, 5, 1)
    assert_array_equal(each.centres, order)


def test_progress_and_interruption():
    X = np.random.default_rng(5).normal(size=(3000, 2))
    seen = []
    find_cover(NeighbourIndex(X), np.arange(3000), 20, 5, progress=lambda done, n: seen.append((done, n)))
    done = [d for d, _ in seen]
    assert len(seen) > 3
    assert done == sorted(done)
    assert seen[-1] == (3000, 3000)

    def stop(done, n):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_cover(NeighbourIndex(X), np.arange(3000), 20, 5, progress=stop)


def slow_extension(before, X, index, order):
    """What `extend_cover` promises, centre by centre and row by row."""
    n_before, neighbours_of = len(before.centre_of_row), neighbours_in(index)
    lists = [neighbours_of(c, before.k) for c in before.centres.tolist()]
    changed = [c for c, rows in enumerate(lists) if rows != before.neighbours[c].tolist()]
    model_of = dict(enumerate(before.centre_of_row.tolist()))
    for row in range(n_before, len(X)):
        for c, centre in enumerate(before.centres):
            if row in lists[c][: before.k_prime] or (X[row] == X[centre]).all():
                model_of.setdefault(row, c)
    centres, models, model_of = algorithm_1(
        X, neighbours_of, order.tolist(), before.k, before.k_prime, model_of, before.centres.tolist()
    )
    return centres, lists + models, [model_of[row] for row in range(len(X))], changed


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), places=st.integers(0, 3), n_new=st.integers(0, 40))
@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_matrix])
def test_extension_matches_its_definition(storage, seed, places, n_new):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 60))
    X = random_rows(rng, n + n_new, 2, places)
    k = int(rng.integers(1, n + 1))
    k_prime = int(rng.integers(1, k + 1))
    before = find_cover(NeighbourIndex(storage(X[:n])), rng.permutation(n), k, k_prime)
    kept = before.neighbours.copy()
    index, order = NeighbourIndex(storage(X)), n + rng.permutation(n_new)
    after = extend_cover(before, index, order)
    centres, lists, centre_of_row, changed = slow_extension(before, X, index, order)
    assert_array_equal(after.cover.centres, centres)
    assert_array_equal(after.cover.neighbours, lists)
    assert_array_equal(after.cover.centre_of_row, centre_of_row)
    assert_array_equal(after.changed, changed)
    assert_array_equal(before.neighbours, kept)


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_matrix])
def test_copies(storage):
    rng = np.random.default_rng(6)
    X = rng.integers(-1, 2, size=(300, 3)).astype(float) * rng.choice([1.0, -1.0], size=(300, 3))
    copies = Copies(storage(X))
    for row in range(300):
        assert_array_equal(copies.of(row), np.flatnonzero((X[row] == X).all(axis=1)))


def test_messages():
    index = NeighbourIndex(np.arange(6.0)[:, None])
    with pytest.raises(ValueError, match="k is 7; there are 6 rows"):
        find_cover(index, np.arange(6), 7, 2)
    with pytest.raises(ValueError, match="k_prime is 4, above k, 3"):
        find_cover(index, np.arange(6), 3, 4)
    with pytest.raises(ValueError, match="each of the 6 rows once"):
        find_cover(index, np.zeros(6, dtype=int), 3, 2)
    cover = find_cover(NeighbourIndex(np.arange(4.0)[:, None]), np.arange(4), 3, 2)
    with pytest.raises(ValueError, match="each row from 4 to 5"):
        extend_cover(cover, index, np.arange(2))
