"""Sums in blocks: tables that contain what is left of a sum, and labels that are always LIBSVM's."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.spatial.distance import cdist

from blocked_cases import KERNELS, TASKS, named, rows, short_lists
from machines import random_machine
from oracle import class_pairs, libsvm_order_label, slow_scores
from svelto import KernelMachine, _core
from svelto.engines.packing import group_vectors, pack_machine, positions_of
from svelto.engines.panel_lists import WIDTH, build_lists, neighbouring_groups, to_packed

FORMS = {"rbf": ("dot", "sq_diff"), "exponential": ("sq_diff",), "laplacian": ("abs_diff",)}


# -- the tables, in the words of the paper -----------------------------------------------------------------------------


def score_weights(machine):
    """One row of weights for each score; zeros where a vector takes no part."""
    if not machine.is_grouped:
        return np.array(machine.dual_coef)
    of = np.repeat(np.arange(machine.n_classes), machine.n_support)
    weights = np.zeros((machine.n_scores, machine.n_sv))
    for p, (i, j) in enumerate(class_pairs(machine.n_classes)):
        weights[p, of == i] = machine.dual_coef[j - 1, of == i]
        weights[p, of == j] = machine.dual_coef[i, of == j]
    return weights


def distances(machine, X, S):
    """In the kernel's metric, to the digits of a long double."""
    difference = np.abs(np.asarray(X, dtype=np.longdouble)[:, None] - np.asarray(S, dtype=np.longdouble)[None])
    if machine.kernel.name == "laplacian":
        return difference.sum(axis=2)
    return np.sqrt((difference**2).sum(axis=2))


def profile(machine, distance):
    """The kernel at a distance."""
    return np.exp(-np.longdouble(machine.kernel.gamma) * (distance**2 if machine.kernel.name == "rbf" else distance))


def panel_of(machine):
    """The panel of each support vector, in the packing that the lists are made for."""
    return positions_of(neighbouring_groups(machine).members, WIDTH)[0] // WIDTH


def tables(machine, X, form, n_lists=3):
    """Fields and lists of a machine, and the centres and reaches in the units of the rows."""
    grouping = neighbouring_groups(machine)
    fields = pack_machine(machine, single_pair=form, use_postings=False, grouping=grouping)
    lists = build_lists(machine, fields, grouping, X, n_lists, 0)
    centres = lists["centres"].astype(np.longdouble) / fields["row_scale_f32"] + fields["centre"]
    return fields, lists, centres, lists["reach"] / np.longdouble(fields["row_scale_f32"])


def rows_within(machine, centre, reach, S, seed):
    """Rows at most `reach` from a centre: anywhere, and straight towards vectors and away from them."""
    rng = np.random.default_rng(seed)
    towards = np.vstack([rng.normal(size=(6, len(centre))), S[rng.integers(len(S), size=6)] - centre])
    away = distances(machine, towards, np.zeros((1, len(centre))))
    share = np.concatenate([rng.uniform(-1, 1, 6), rng.choice([-1, 1], 6) * (1 - 1e-7)])
    return centre + towards / np.where(away == 0, 1, away) * (share * reach)[:, None]


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize(("kernel", "form"), [(k, f) for k in KERNELS for f in FORMS[k]])
def test_tables_contain_what_is_left(kernel, form, task):
    for d, gamma, spread, shift in ((1, 1.0, 1.0, 0.0), (3, 0.1, 1.0, 1e6), (2, 1e-8, 1e3, 0.0), (17, 0.5, 1.0, -3.0)):
        machine = random_machine(kernel, n_sv=230, d=d, gamma=gamma, spread=spread, seed=d, **task)
        S = machine.support_vectors + shift
        machine = replace(machine, support_vectors=S)
        with short_lists(longest=0.7):
            fields, lists, centres, reaches = tables(machine, rows(60, d) * spread + shift, form)
        check_order(lists, fields["n_panels_f32"])
        check_rest(machine, lists, centres, reaches)


def check_order(lists, n_panels):
    starts, order = lists["chunk_start"], lists["order"]
    assert starts[0] == 0
    assert starts[-1] == max(1, int(0.7 * n_panels)) == order.shape[1]
    for panels in order:
        assert len(set(panels.tolist())) == len(panels)
        assert set(panels.tolist()) <= set(range(n_panels))
        for first, last in pairwise(starts):
            assert first < last
            assert (np.diff(panels[first:last]) > 0).all()
    assert (np.diff(lists["reach"], axis=1) >= 0).all()


def check_rest(machine, lists, centres, reaches):
    S, weights, panel = machine.support_vectors, score_weights(machine), panel_of(machine)
    starts = lists["chunk_start"]
    for number, (centre, reach) in enumerate(zip(centres, reaches, strict=True)):
        D = distances(machine, centre[None], S)[0]
        for level, r in enumerate(reach):
            least, most = profile(machine, D + r), profile(machine, np.maximum(D - r, 0))
            X = rows_within(machine, centre, r, S, number + level)
            away = distances(machine, X, S)
            values = profile(machine, away)
            assert (values >= least * (1 - 1e-6)).all()
            assert (values <= most * (1 + 1e-6)).all()
            for chunk in range(lists["n_chunks"] + 1):
                left = ~np.isin(panel, lists["order"][number, : starts[chunk]])
                low, high = lists["rest"][number, chunk, level].astype(np.float64)
                sums = values[:, left] @ weights[:, left].T
                assert (low <= sums).all()
                assert (sums <= high).all()
                # Not only contained: the table is the paper's bound, vector by vector.
                positive, negative = np.maximum(weights[:, left], 0), np.minimum(weights[:, left], 0)
                size = np.abs(weights[:, left]) @ most[left]
                assert (np.abs(positive @ least[left] + negative @ most[left] - low) <= 1e-6 * size + 1e-38).all()
                assert (np.abs(positive @ most[left] + negative @ least[left] - high) <= 1e-6 * size + 1e-38).all()
            for chunk, (first, last) in enumerate(pairwise(starts)):
                inside = np.isin(panel, lists["order"][number, first:last])
                exponent = -np.log2(np.maximum(values[:, inside], 1e-4000))
                assert (exponent <= lists["exponent"][number, chunk, level]).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_tables_hold_where_the_bound_is_attained(kernel, side, sign):
    """One feature, all vectors on one side of the rows, weights of one sign: a row at the reach meets the bound."""
    S = side * np.random.default_rng(0).uniform(5, 8, size=(200, 1))
    weights = sign * np.random.default_rng(1).uniform(0.5, 1, size=200)
    machine = KernelMachine.from_arrays(
        kernel=kernel, gamma=0.3, support_vectors=S, dual_coef=weights, intercept=0.0, classes=[0, 1]
    )
    for form in FORMS[kernel]:
        with short_lists():
            _, lists, centres, reaches = tables(machine, rows(40, 1), form)
        panel = panel_of(machine)
        for number, level in np.ndindex(*reaches.shape):
            for direction in (-1, 1):
                x = centres[number] + direction * reaches[number, level] * (1 - 1e-12)
                values = profile(machine, distances(machine, x[None], S)[0]) * weights
                for chunk, start in enumerate(lists["chunk_start"]):
                    left = ~np.isin(panel, lists["order"][number, :start])
                    low, high = lists["rest"][number, chunk, level, :, 0].astype(np.float64)
                    assert low <= values[left].sum() <= high


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_neighbouring_groups_are_the_usual_groups_in_another_order(task):
    machine = random_machine(n_sv=1500, d=2, **task)
    usual, ours = group_vectors(machine), neighbouring_groups(machine)
    assert (usual.layout, usual.abs_cols) == (ours.layout, ours.abs_cols)
    assert_array_equal(usual.columns, ours.columns)
    radius = []
    for a, b in zip(usual.members, ours.members, strict=True):
        assert_array_equal(np.sort(b), np.sort(a))
        for members in (a, b):
            panels = [machine.support_vectors[members[i : i + WIDTH]] for i in range(0, len(members), WIDTH)]
            radius.append(np.mean([np.linalg.norm(p - p.mean(axis=0), axis=1).mean() for p in panels]))
    assert np.mean(radius[1::2]) < 0.6 * np.mean(radius[::2])  # neighbours, not just any order


# -- the walk: tables that lie show which of their numbers were used ---------------------------------------------------


def planted(machine, centre, reach, rest, *, pair=None, n_chunks=None):
    """An engine with one list over all panels, with the given levels and rest; and its fields."""
    grouping = neighbouring_groups(machine)
    form = pair or FORMS[machine.kernel.name][0]
    fields = pack_machine(machine, single_pair=form, use_postings=False, grouping=grouping)
    with short_lists(chunks=(1,) * 40):
        lists = build_lists(machine, fields, grouping, np.atleast_2d(centre), 1, 0)
    lists["reach"] = np.array([reach], dtype=np.float64)
    lists["n_levels"] = len(reach)
    shape = (1, lists["n_chunks"] + 1, len(reach), 2, machine.n_scores)
    lists["rest"] = np.ascontiguousarray(np.broadcast_to(rest, shape), dtype=np.float32)
    lists["exponent"] = np.full((1, lists["n_chunks"], len(reach)), 126.0, dtype=np.float32)
    engine = _core.Engine(fields, _core.available_levels()[-1])
    engine.set_lists(lists)
    return engine, fields, lists


def walked(engine, X, enabled, n_threads=1):
    labels, used = np.full(len(X), -7, dtype=np.int32), np.zeros((1, _core.LIST_COUNTS), dtype=np.int64)
    outcome = engine.bounded_dense(X, labels, np.array([enabled], dtype=np.uint8), used, 0, False, n_threads)
    return labels, used[0], outcome


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("enabled", [1, 2])
def test_a_row_uses_the_least_level_that_contains_it(kernel, enabled):
    """Levels below `first` say class 1, the others class 0: the label tells on which side the row's level was."""
    machine = random_machine(kernel, n_sv=100, d=2, gamma=0.7)
    # Far from the vectors' mean, so that float32 rounds rows by much more than what decides about some of them; but
    # hardly those at the largest radius, which are near the mean.
    centre, mean = np.array([5.0, -4.0]), machine.support_vectors.mean(axis=0)
    size = (lambda x: np.abs(x).sum(axis=-1)) if kernel == "laplacian" else (lambda x: np.linalg.norm(x, axis=-1))
    radii = np.array([0.1, 0.4, 0.5, 1.0, size(mean - centre)])
    rng = np.random.default_rng(0)
    step = rng.normal(size=(1500, 2))
    step[4::5] = mean - centre + 1e-3 * step[4::5]
    beside = 10.0 ** rng.uniform(-10, -1, size=1500) * rng.choice([-1, 1], 1500)
    X = centre + step / size(step)[:, None] * (np.tile(radii, 300) * (1 + beside))[:, None]
    _, fields, lists = planted(machine, centre, [1.0], 0.0)
    reach, power = radii * fields["row_scale_f32"], 1 if kernel == "laplacian" else 2
    limits = [Fraction(float(r)) ** power for r in reach]
    level = np.array([sum(to_exact(fields, x, lists["centres"][0], kernel) > r for r in limits) for x in X])
    inside = level < len(reach)
    beyond = [libsvm_order_label(machine, x) for x in X[~inside]]
    for first in range(len(reach) + 1):
        lie = np.where(np.arange(len(reach)) < first, -1e6, 1e6)[:, None, None]
        labels, used, _ = walked(planted(machine, centre, reach, lie)[0], X, enabled)
        assert_array_equal(named(machine, labels[~inside]), beyond)  # of these the tables say nothing
        below = labels == 1
        assert (level[below & inside] < first).all()
        # Worth something, too: only rows within rounding of an edge use a level more than they need.
        clear = inside & (np.abs(beside) > 1e-5)
        assert_array_equal(below[clear], level[clear] < first)
        assert used[1] >= clear.sum()


def to_exact(fields, x, centre, kernel):
    """Distance from a centre in packed units (its square for Euclidean ones), without any rounding."""
    scale = Fraction(float(fields["row_scale_f32"]))
    differences = [
        (Fraction(float(a)) - Fraction(float(m))) * scale - Fraction(float(c))
        for a, m, c in zip(x, fields["centre"], centre, strict=True)
    ]
    return sum(abs(e) if kernel == "laplacian" else e * e for e in differences)


@pytest.mark.parametrize("enabled", [1, 2])
@pytest.mark.parametrize("task", [{}, {"n_classes": 3}, {"n_classes": 9}, {"n_classes": 3, "rule": "argmax"}], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_list_over_all_panels_is_the_whole_sum(kernel, task, enabled):
    """Nothing is known until the end, where nothing is left."""
    machine = random_machine(kernel, n_sv=400, d=3, gamma=0.7, **task)
    machine = replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, rows(99, 3)), axis=0))
    X = rows(400, 3, seed=3)
    engine, _, lists = planted(machine, np.zeros(3), [1e3], 0.0)
    wide = np.zeros_like(lists["rest"])
    wide[:, :-1] = np.array([-1e30, 1e30])[:, None]
    lists["rest"] = wide
    engine.set_lists(lists)
    labels, used, outcome = walked(engine, X, enabled)
    assert_array_equal(named(machine, labels), [libsvm_order_label(machine, x) for x in X])
    assert used[0] == len(X)
    assert used[1] == outcome[0] > 0.9 * len(X)
    n_panels = lists["order"].shape[1]
    assert used[1 + enabled] >= 0.9 * n_panels * len(X)  # every row walked to the end
    assert outcome[1] == used[2] + used[3]


def test_rows_that_stop_leave_the_others_sums_alone():
    """Levels that stop at different chunks: the rows that go on are moved together, with what belongs to them."""
    machine = random_machine(n_sv=600, d=2, gamma=0.7)
    machine = replace(machine, intercept=machine.intercept - np.median(slow_scores(machine, rows(99, 2)), axis=0))
    X = rows(300, 2, seed=5)
    _, fields, lists = planted(machine, np.zeros(2), [1.0], 0.0)
    packed = to_packed(fields, X)
    away = cdist(packed, lists["centres"].astype(np.float64))[:, 0]
    reach = np.quantile(away, np.linspace(0.1, 1, 10)) * 1.0001
    engine, _, lists = planted(machine, np.zeros(2), reach, 0.0)
    n_chunks = lists["n_chunks"]
    level = np.searchsorted(reach, away)
    expected = np.array([libsvm_order_label(machine, x) for x in X])
    for enabled in (1, 2):
        rest = np.empty((1, n_chunks + 1, 10, 2, 1), dtype=np.float32)
        rest[:, :, :, 0], rest[:, :, :, 1] = -1e30, 1e30
        rest[:, -1] = 0.0  # what is left at the end
        for even in range(0, 10, 2):
            rest[0, 1 + even, even] = 1e20  # even levels stop on the way, one after the other, with a lie
        engine.set_lists({**lists, "rest": rest})
        labels = walked(engine, X, enabled)[0]
        odd = level % 2 == 1
        assert_array_equal(named(machine, labels)[odd], expected[odd])
        assert (labels[~odd] == 0).all()
