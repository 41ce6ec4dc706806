"""Nearest neighbours: every search against the full matrix of distances, to the last bit.

The slow definition stands first. Distances are sums in eight lanes, so that one order of additions serves them all.
"""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from svelto import _core
from svelto.kernels import Kernel
from svelto.training._local import blocked_search, library_search, mapped_search, neighbours, tree_search
from svelto.training._local.feature_space import FeatureSpace
from svelto.training._local.mapped_search import mapped_width
from svelto.training._local.neighbours import NeighbourIndex

HAS_FAISS = importlib.util.find_spec("faiss") is not None
NEEDS_FAISS = pytest.mark.skipif(not HAS_FAISS, reason="faiss is not installed")
DENSE_METHODS = ["tree", "kd_tree", "ball_tree", "brute", pytest.param("faiss", marks=NEEDS_FAISS)]
POLY = [Kernel("poly", gamma=0.5, coef0=1.0, degree=2), Kernel("poly", gamma=2.0, degree=3), Kernel("poly", degree=0)]


# -- the definition, written to be read -------------------------------------------------------------------------------


def lane_sum(terms):
    """Sum over the last axis: feature f to lane f % 8, lanes in the order of features, then 0 + 4, 1 + 5, ..."""
    lane = np.zeros((*terms.shape[:-1], 8))
    for f in range(terms.shape[-1]):
        lane[..., f % 8] += terms[..., f]
    half = lane[..., :4] + lane[..., 4:]
    return (half[..., 0] + half[..., 2]) + (half[..., 1] + half[..., 3])


def slow_sq_dist(X, Q, kernel=None):
    if kernel is None or kernel.name != "poly" or kernel.degree == 1:
        return lane_sum((Q[:, None, :] - X[None, :, :]) ** 2)

    def power(products):
        value = np.ones_like(products)
        for _ in range(kernel.degree):
            value = value * (kernel.gamma * products + kernel.coef0)
        return value

    xx, qq = power(lane_sum(X * X))[None, :], power(lane_sum(Q * Q))[:, None]
    return np.maximum(xx + qq - 2 * power(lane_sum(Q[:, None, :] * X[None, :, :])), 0)


def slow_neighbours(X, Q, k, kernel=None):
    sq_dist = slow_sq_dist(X, Q, kernel)
    index = np.array([np.lexsort((np.arange(len(X)), row))[:k] for row in sq_dist]).reshape(len(Q), k)
    return index, np.take_along_axis(sq_dist, index, axis=1)


def check(index, X, Q, k, kernel=None):
    for got, expected in zip(index.query(Q, k), slow_neighbours(X, Q, k, kernel), strict=True):
        assert_array_equal(got, expected)


# -- data -------------------------------------------------------------------------------------------------------------


def normal(rng, n, d):
    return rng.normal(size=(n, d))


def grid(rng, n, d):
    """Few places, many ties, many copies."""
    return rng.integers(0, 3, size=(n, d)).astype(float)


def copies(rng, n, d):
    """A few rows over and over, in no order."""
    return rng.normal(size=(4, d))[rng.integers(0, 4, size=n)]


def flat(rng, n, d):
    """Constant features beside others, and a large mean."""
    X = rng.normal(size=(n, d))
    X[:, ::2] = 7.0
    return X + 1e3


def mixed(rng, n, d):
    """Clusters within clusters, and features whose scales differ."""
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 2, size=(n, 1))
    return X * 10.0 ** rng.integers(-3, 4, size=d)


DATA = [normal, grid, copies, flat, mixed]


@pytest.mark.parametrize("method", DENSE_METHODS)
@pytest.mark.parametrize("make", DATA)
@pytest.mark.parametrize("d", [1, 2, 8, 9, 17, 64, 65])
def test_searches_match_the_definition(d, make, method):
    rng = np.random.default_rng(d)
    X = make(rng, 150, d)
    Q = np.vstack([X[::7], make(rng, 10, d), X[:5] + 1e-9])
    index = NeighbourIndex(X, method=method)
    for k in (1, 2, 20, 150):
        check(index, X, Q, k)
    assert_array_equal(index.nearest(Q), slow_neighbours(X, Q, 1)[0][:, 0])


@pytest.mark.parametrize("method", DENSE_METHODS)
@pytest.mark.parametrize("scale", [1e-160, 1e-30, 1e-6, 1e6, 1e30, 1e140])
def test_any_scale(scale, method):
    rng = np.random.default_rng(0)
    for make in DATA:
        X = make(rng, 120, 5) * scale
        Q = np.vstack([X[:10], make(rng, 10, 5) * scale, np.zeros((1, 5)), np.full((1, 5), 1e3 * scale)])
        check(NeighbourIndex(X, method=method), X, Q, 9)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 90), d=st.integers(1, 20), places=st.integers(1, 5))
def test_ties_go_to_the_row_that_comes_first(seed, n, d, places):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, places, size=(n, d)).astype(float)
    Q = rng.integers(0, places, size=(6, d)) / 2
    k = int(rng.integers(1, n + 1))
    expected = slow_neighbours(X, Q, k)
    for method in ("tree", "kd_tree", "ball_tree", "brute", *(["faiss"] if HAS_FAISS else [])):
        for got, right in zip(NeighbourIndex(X, method=method).query(Q, k), expected, strict=True):
            assert_array_equal(got, right, err_msg=method)


@pytest.mark.parametrize("method", DENSE_METHODS)
def test_thousands_of_features(method):
    rng = np.random.default_rng(6)
    for n in (30, 200):
        X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, 3000)) + 0.1 * rng.normal(size=(n, 3000))
        check(NeighbourIndex(X, method=method), X, X[:12] + 0.01, 5)


@pytest.mark.parametrize("method", DENSE_METHODS)
def test_copies_by_the_thousand(method):
    rng = np.random.default_rng(1)
    X = np.vstack([np.repeat(rng.normal(size=(2, 6)), 3000, axis=0), rng.normal(size=(500, 6))])[rng.permutation(6500)]
    Q = np.vstack([X[:4], rng.normal(size=(3, 6))])
    check(NeighbourIndex(X, method=method), X, Q, 40)
    check(NeighbourIndex(X, method=method), X, Q, 3100)


def test_the_tree_reads_few_of_many_copies():
    X = np.vstack([np.zeros((20_000, 3)), np.random.default_rng(0).normal(size=(2000, 3))])
    index, _, (_, n_measured) = tree_search.TreeSearch(X).search(np.zeros((1, 3)), 5)
    assert_array_equal(index, [np.arange(5)])
    assert n_measured < 2000


@pytest.mark.parametrize("make", [normal, grid, copies])
@pytest.mark.parametrize("kernel", [None, *POLY], ids=str)
@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_kernels_and_storage(storage, kernel, make):
    rng = np.random.default_rng(2)
    X = make(rng, 130, 11) * (rng.random((130, 11)) < 0.5)
    Q = np.vstack([X[:9], -X[9:14], make(rng, 5, 11)])
    index = NeighbourIndex(storage(X), kernel)
    width = X.shape[1] if kernel is None else mapped_width(FeatureSpace.of(kernel), X.shape[1])
    assert index.method == ("tree" if width is not None and storage is np.asarray else "brute")
    check(index, X, Q, 8, kernel)
    check(NeighbourIndex(storage(X), kernel, method="brute"), X, Q, 8, kernel)
    for queries in (storage(Q), sparse.csr_matrix(Q), Q.astype(np.float32).astype(np.float64)):
        expected = queries.toarray() if sparse.issparse(queries) else queries
        assert_array_equal(index.query(queries, 8)[0], slow_neighbours(X, expected, 8, kernel)[0])


def test_polynomial_maps():
    """The product of mapped rows is the kernel; so many monomials as counted."""
    rng = np.random.default_rng(4)
    X = normal(rng, 40, 5)
    for gamma, coef0, degree in ((0.5, 1.0, 2), (2.0, 0.0, 2), (0.3, 0.7, 3), (1.0, 0.0, 4)):
        space = FeatureSpace.of(Kernel("poly", gamma=gamma, coef0=coef0, degree=degree))
        search = mapped_search.MappedSearch(X, space)
        constant = coef0**degree  # the same for all rows: left out
        assert_allclose(
            search.rows @ search.rows.T + constant, (gamma * X @ X.T + coef0) ** degree, rtol=1e-9, atol=1e-9
        )
        assert len(search.monomials) == mapped_width(space, 5)
    assert mapped_width(FeatureSpace.of(Kernel("poly", gamma=1.0, coef0=-1.0, degree=2)), 2) is None
    assert mapped_width(FeatureSpace.of(Kernel("poly", gamma=1.0, coef0=1.0, degree=5)), 50) is None


def test_mapped_rows_of_any_size():
    """Products of features overflow where the kernel's values do not."""
    rng = np.random.default_rng(7)
    for size in (1e-100, 1e110):
        X = rng.normal(size=(300, 2)) * size
        kernel = Kernel("poly", gamma=1.0 / (2.0 * X.var()), coef0=1.0, degree=3)
        check(NeighbourIndex(X, kernel, method="tree"), X, X[:20], 5, kernel)


def test_mapped_rows_that_rounding_leaves_open_are_measured():
    """Far from the origin many rows are within rounding of each other."""
    rng = np.random.default_rng(5)
    X = 1e6 + rng.integers(0, 3, size=(400, 2)).astype(float)
    for kernel in (Kernel("poly", gamma=1.0, coef0=1.0, degree=2), Kernel("poly", gamma=1.0, coef0=0.0, degree=3)):
        index = NeighbourIndex(X, kernel)
        assert index.method == "tree"
        check(index, X, X[:30], 7, kernel)


def test_kernels_of_euclidean_order():
    rng = np.random.default_rng(3)
    X = normal(rng, 80, 4)
    for kernel in (Kernel("rbf", gamma=3.0), Kernel("linear"), Kernel("poly", gamma=2.0, coef0=1.0, degree=1)):
        check(NeighbourIndex(X, kernel), X, X, 5)
        assert FeatureSpace.of(kernel).euclidean
    # The order of a polynomial's space is another one.
    assert (NeighbourIndex(X, POLY[1]).query(X, 5)[0] != NeighbourIndex(X).query(X, 5)[0]).any()


@pytest.mark.parametrize("method", DENSE_METHODS)
def test_batches_and_threads_do_not_matter(method, monkeypatch):
    rng = np.random.default_rng(4)
    X, Q = grid(rng, 700, 6), grid(rng, 90, 6)
    expected = slow_neighbours(X, Q, 12)
    for module, name, size in (
        (blocked_search, "BLOCK_QUERIES", 7),
        (blocked_search, "CHUNK_NUMBERS", 64),
        (library_search, "QUERIES_PER_CALL", 11),
        (tree_search, "QUERIES_PER_CALL", 13),
        (tree_search, "LEAF_ROWS", 3),
        (neighbours, "BLOCK_NUMBERS", 500),
    ):
        monkeypatch.setattr(module, name, size)
        index = NeighbourIndex(X, method=method, n_jobs=2)
        for n_jobs in (1, 2, None):
            for got, right in zip(index.query(Q, 12, n_jobs=n_jobs), expected, strict=True):
                assert_array_equal(got, right)
    one_by_one = np.vstack([index.query(Q[i : i + 1], 12)[0] for i in range(len(Q))])
    assert_array_equal(one_by_one, expected[0])
    assert_array_equal(pickle.loads(pickle.dumps(index)).query(Q, 12)[0], expected[0])


@pytest.mark.parametrize("d", [1, 8, 13, 33])
def test_instruction_levels_agree(d, monkeypatch):
    rng = np.random.default_rng(d)
    X = mixed(rng, 3000, d)
    expected = slow_neighbours(X, X[:40], 30)
    for level in _core.available_levels():
        monkeypatch.setenv("SVELTO_ISA", level)
        for got, right in zip(NeighbourIndex(X, method="tree").query(X[:40], 30), expected, strict=True):
            assert_array_equal(got, right)


def test_products_that_cannot_tell_rows_apart():
    """Rows closer together than float32, and than what is left of float64 products."""
    rng = np.random.default_rng(5)
    for spread in (1e-5, 1e-9, 1e-14):
        X = 1.0 + spread * rng.normal(size=(400, 6))
        X[0] = -50.0  # keeps the centre away
        for method in ("tree", "brute", "kd_tree"):
            check(NeighbourIndex(X, method=method), X, X[:30], 7)


def test_auto_looks_at_how_much_the_tree_leaves_out():
    rng = np.random.default_rng(6)
    assert NeighbourIndex(normal(rng, 5000, 3)).method == "tree"
    assert NeighbourIndex(normal(rng, 3000, 300)).method == "brute"
    # Many features, few dimensions.
    assert NeighbourIndex(normal(rng, 3000, 3) @ normal(rng, 3, 300)).method == "tree"
    assert NeighbourIndex(sparse.random(3000, 50, 0.1, format="csr", random_state=0)).method == "brute"


def test_messages():
    X = np.eye(3)
    with pytest.raises(ValueError, match="k is 4; the index has 3 rows"):
        NeighbourIndex(X).query(X, 4)
    with pytest.raises(ValueError, match="k is 0; expected a whole number"):
        NeighbourIndex(X).query(X, 0)
    with pytest.raises(ValueError, match="3 features; the queries have 2"):
        NeighbourIndex(X).query(X[:, :2], 1)
    with pytest.raises(ValueError, match="neighbors is 'annoy'; expected one of 'auto'"):
        NeighbourIndex(X, method="annoy")
    with pytest.raises(ValueError, match="neighbors='kd_tree' needs dense rows"):
        NeighbourIndex(sparse.csr_matrix(X), method="kd_tree")
    with pytest.raises(ValueError, match="neighbors='tree' needs a kernel of Euclidean order"):
        NeighbourIndex(X, POLY[2], method="tree")
    with pytest.raises(ValueError, match="at least one row"):
        NeighbourIndex(X[:0])
    with pytest.raises(NotImplementedError, match="sigmoid kernel are not supported"):
        NeighbourIndex(X, Kernel("sigmoid"))
    with pytest.raises(ValueError, match=r"query rows: the largest value is 1e\+160: squared distances overflow"):
        NeighbourIndex(X).query(X * 1e160, 1)
    with pytest.raises(ValueError, match="the largest value is nan"):
        NeighbourIndex(X * np.nan)
    with pytest.raises(ValueError, match="degree 3 overflow"):
        NeighbourIndex(X * 1e60, Kernel("poly", degree=3))
    with pytest.raises(ValueError, match=r"coef0 is 1e\+200\). Scale the features, or take a smaller coef0"):
        NeighbourIndex(X, Kernel("poly", degree=3, coef0=1e200))


def test_faiss_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(ImportError, match="pip install faiss-cpu"):
        NeighbourIndex(np.eye(3), method="faiss")


def test_no_queries():
    for method in ("tree", "kd_tree", "brute"):
        index, sq_dist = NeighbourIndex(np.eye(3), method=method).query(np.empty((0, 3)), 2)
        assert index.shape == sq_dist.shape == (0, 2)
