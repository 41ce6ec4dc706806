"""`svelto.path_tree` on the members of ensembles, and on plain matrices of terms."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.ensemble import GradientBoostingClassifier

import svelto


@pytest.fixture(scope="module")
def boosted():
    """Terms of 200 boosted trees on rows to learn from and on new rows; the sum is the decision function."""
    X, y = make_moons(3000, noise=0.25, random_state=0)
    model = GradientBoostingClassifier(n_estimators=200, max_depth=2, random_state=0).fit(X[:500], y[:500])
    terms = model.learning_rate * np.column_stack([tree.predict(X) for tree in model.estimators_[:, 0]])
    start = model.decision_function(X[:1])[0] - terms[0].sum()
    np.testing.assert_allclose(terms.sum(axis=1) + start, model.decision_function(X), atol=1e-9)
    return terms[:2000], terms[2000:], start


def agreement(tree, terms, start):
    return np.mean((tree.predict(terms) + start > 0) == (terms.sum(axis=1) + start > 0))


def test_few_members_answer_for_all(boosted):
    terms, new, start = boosted
    tree = svelto.path_tree(terms, max_evals=8, random_state=0)
    assert tree.evaluations(new).max() <= 8
    assert agreement(tree, new, start) > 0.97


def test_refitted_leaves_beat_the_paper_at_no_more_terms(boosted):
    terms, new, _ = boosted
    paper = svelto.path_tree(terms, tree="paper", max_evals=8, random_state=0)
    refitted = svelto.path_tree(terms, max_evals=8, random_state=0)
    r = new.sum(axis=1)
    assert np.mean((refitted.predict(new) - r) ** 2) < np.mean((paper.predict(new) - r) ** 2)


def test_only_terms_on_the_path_are_asked_for(boosted):
    terms, new, _ = boosted
    tree = svelto.path_tree(terms, max_evals=6, random_state=0)
    asked = []

    def ask(rows, column):
        asked.append((rows, column))
        return new[rows, column]

    found = tree.predict(ask, len(new))
    np.testing.assert_array_equal(found, tree.predict(new))
    counts = np.zeros(len(new), dtype=int)
    for rows, _ in asked:
        counts[rows] += 1
    np.testing.assert_array_equal(counts, tree.evaluations(new))
    assert {column for _, column in asked} <= set(tree.columns.tolist())


def test_several_scores_share_a_tree(boosted):
    terms, new, _ = boosted
    both = np.column_stack([terms[:, :100].sum(axis=1), terms[:, 100:].sum(axis=1)])
    tree = svelto.path_tree(terms, both, max_evals=10, random_state=0)
    found = tree.predict(new)
    assert found.shape == (len(new), 2)
    expected = np.column_stack([new[:, :100].sum(axis=1), new[:, 100:].sum(axis=1)])
    assert (np.mean((found - expected) ** 2, axis=0) < 0.1 * expected.var(axis=0)).all()


def test_a_sum_of_few_terms_is_found_exactly():
    rng = np.random.default_rng(0)
    terms = rng.normal(size=(400, 20))
    terms[:, 3:] = 0.0
    tree = svelto.path_tree(terms, max_evals=5, random_state=0)
    np.testing.assert_allclose(tree.predict(terms), terms.sum(axis=1), atol=1e-5)  # columns are kept in float32
    assert tree.evaluations(terms).max() == 3


def test_the_same_seed_gives_the_same_tree(boosted):
    terms, new, _ = boosted
    for options in ({}, {"tree": "paper"}):
        found = [svelto.path_tree(terms, random_state=3, n_jobs=n, **options).predict(new) for n in (1, 1)]
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", ["paper", "refitted"])
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e60])
def test_the_size_of_terms_does_not_matter(boosted, kind, size):
    terms, new, _ = boosted
    options = {"tree": kind, "max_evals": 6, "random_state": 0}
    expected = svelto.path_tree(terms / np.abs(terms).max(), **options).predict(new / np.abs(terms).max())
    found = svelto.path_tree(terms * size, **options).predict(new * size)
    assert np.corrcoef(found, expected)[0, 1] > 0.999


def test_a_tree_that_would_not_fit_memory_is_refused(boosted, monkeypatch):
    monkeypatch.setattr(sys.modules["svelto.path_tree"], "MOST_BYTES", 100)  # the name is that of the function too
    with pytest.raises(ValueError, match=r"leaves, paths of up to 8 values and 1 score\(s\).*Limit it with max_evals"):
        svelto.path_tree(boosted[0], max_evals=8)


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        (np.ones(5), {}, r"terms has shape \(5,\); expected \(n_rows, n_terms\)"),
        (np.ones((1, 5)), {}, r"terms has shape \(1, 5\)"),
        (np.ones((4, 2)), {"r": np.ones(3)}, r"r has shape \(3,\); expected \(4,\) or \(4, n_scores\)"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), {}, "Row 1 of terms is not finite"),
        (np.ones((4, 2)), {"r": [0.0, np.inf, 0.0, 0.0]}, "Row 1 of r is not finite"),
        (np.ones((4, 2)), {"max_evals": 0}, "max_evals is 0; expected a whole number of at least 1"),
        (np.ones((4, 2)), {"tree": "other"}, "tree is 'other'; expected one of 'refitted', 'paper'"),
        (np.ones((4, 2)), {"held_out": 1.0}, "held_out is 1.0; expected a share between 0 and 1"),
    ],
)
def test_bad_input_is_named(terms, options, message):
    with pytest.raises(ValueError, match=message):
        svelto.path_tree(terms, **options)


def test_functions_need_the_number_of_rows(boosted):
    terms, _, _ = boosted
    tree = svelto.path_tree(terms, max_evals=2, random_state=0)
    with pytest.raises(ValueError, match="pass n_rows"):
        tree.predict(lambda rows, column: terms[rows, column])
    with pytest.raises(ValueError, match=r"returned an array of shape \(3,\) for 10 rows"):
        tree.predict(lambda rows, column: np.ones(3), 10)
