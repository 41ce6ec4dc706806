"""SVMTreeClassifier as a user meets it: scikit-learn's checks, labels by definition, tails, weights, bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_classification, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from svelto import SVMTreeClassifier

PAPER = {"tail": None, "last": "class", "prefer": "rows", "greedy": 0, "min_peeled": 0.0}


def quick(**parameters):
    """A tree with a fixed tail, so that nothing is searched for."""
    return SVMTreeClassifier(**{"tail": SVC(C=10.0, gamma=1.0), "random_state": 0, **parameters})


def scaled(tree, X):
    return (X - tree.scale_shift_) / tree.scale_factor_


@pytest.fixture(scope="module")
def moons():
    return make_moons(1500, noise=0.15, random_state=0)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, np.array(list("abcdefghij"))[y]


@pytest.mark.filterwarnings(
    "ignore:.*chains ended with rows of both classes left:sklearn.exceptions.ConvergenceWarning"
)
@parametrize_with_checks(
    [
        SVMTreeClassifier(),
        SVMTreeClassifier(tail=None, multi_class="ovr", probability=True),
    ]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# -- labels by definition ----------------------------------------------------------------------------------------------


def outcomes_by_definition(tree, X):
    """Every chain of every row in float64, one node after the other."""
    chains = tree._tree.chains
    outcome = np.empty((len(X), chains.n_chains), dtype=int)
    depth = np.empty_like(outcome)
    for c in range(chains.n_chains):
        nodes = range(chains.chain_start[c], chains.chain_start[c + 1])
        for r, x in enumerate(X):
            outcome[r, c], depth[r, c] = chains.end[c], len(nodes)
            for position, h in enumerate(nodes):
                score = chains.planes[h] @ x
                if score < chains.low[h] or score > chains.high[h]:
                    outcome[r, c], depth[r, c] = (-1 if score < chains.low[h] else 1), position + 1
                    break
    return outcome, depth


def votes_by_definition(tree, outcome):
    """Duels won by every class."""
    won = np.zeros((len(outcome), len(tree.classes_)), dtype=int)
    for c, (negative, positive) in enumerate(tree._tree.chains.classes_of_chain):
        won[:, negative] += outcome[:, c] == -1
        won[:, positive] += outcome[:, c] == 1
    return won


@pytest.mark.parametrize("parameters", [{}, PAPER, {"tail": None}, {"tail_at": 1}], ids=str)
def test_labels_of_digits_by_definition(digits, parameters):
    X, y = digits
    tree = quick(**({"tail": SVC(C=10.0)} | parameters)).fit(X[:900], y[:900])
    rows = X[900:1100]
    outcome, depth = outcomes_by_definition(tree, rows)
    won = votes_by_definition(tree, outcome)
    labels = tree.predict(rows)
    settled = won.max(axis=1) == 9
    assert (labels[settled] == tree.classes_[won.argmax(axis=1)][settled]).all()
    if tree.tail is None:
        for label, counts in zip(labels, won, strict=True):  # most votes; margins decide between equal votes
            assert counts[tree.classes_ == label] == counts.max()
    else:
        numbers = tree.tail_.predict(scaled(tree, rows))
        assert (labels[~settled] == tree.classes_[numbers[~settled]]).all()
        assert tree.work(rows)["settled"] == pytest.approx(settled.mean())
    assert tree.average_depth(rows) == pytest.approx(depth.mean() + (0 if tree.tail is None else (~settled).mean()))


def test_two_classes_by_definition(moons):
    X, y = moons
    tree = quick().fit(X[:1000], y[:1000])
    outcome, depth = outcomes_by_definition(tree, X[1000:])
    labels, settled = tree.predict(X[1000:]), outcome[:, 0] != 0
    assert 0.3 < settled.mean() < 1.0
    np.testing.assert_array_equal(labels[settled], (outcome[settled, 0] + 1) // 2)
    numbers = tree.tail_.predict(scaled(tree, X[1000:]))
    np.testing.assert_array_equal(labels[~settled], numbers[~settled])
    work = tree.work(X[1000:])
    assert work["planes"] == pytest.approx(depth.mean())
    assert work["tail_rows"] == pytest.approx(1 - settled.mean())
    assert work["kernel_values"] == pytest.approx((1 - settled.mean()) * len(tree.tail_.support_))


def test_one_vs_rest_by_definition(digits):
    X, y = digits
    tree = quick(multi_class="ovr", tail=SVC(C=10.0)).fit(X[:900], y[:900])
    outcome, _ = outcomes_by_definition(tree, X[900:])
    settled = ((outcome == 1).sum(axis=1) == 1) & ((outcome == -1).sum(axis=1) == 9)
    labels = tree.predict(X[900:])
    assert (labels[settled] == tree.classes_[outcome.argmax(axis=1)][settled]).all()
    numbers = tree.tail_.predict(scaled(tree, X[900:]))
    assert (labels[~settled] == tree.classes_[numbers[~settled]]).all()


def test_decision_path_holds_the_nodes_that_are_met(moons):
    X, y = moons
    tree = quick().fit(X[:1000], y[:1000])
    path = tree.decision_path(X[1000:]).toarray()
    outcome, depth = outcomes_by_definition(tree, X[1000:])
    assert path.shape == (500, tree.n_nodes_ + 1)
    for row, met, is_open in zip(path, depth[:, 0], outcome[:, 0] == 0, strict=True):
        np.testing.assert_array_equal(row, [1] * met + [0] * (tree.n_nodes_ - met) + [is_open])


# -- learning ----------------------------------------------------------------------------------------------------------


def test_the_tail_takes_the_hard_rows_and_keeps_the_accuracy():
    X, y = make_moons(4000, noise=0.2, random_state=3)
    tree = quick().fit(X[:2000], y[:2000])
    alone = SVC(C=10.0, gamma=1.0).fit(scaled(tree, X[:2000]), y[:2000])
    accuracy = alone.score(scaled(tree, X[2000:]), y[2000:])
    assert tree.work(X[2000:])["settled"] > 0.3
    assert tree.score(X[2000:], y[2000:]) > accuracy - 0.004
    assert tree.cv_accuracy_ >= tree.cv_tail_accuracy_ - tree.tail_loss
    # Trees of the folds know fewer rows: they settle less, never much more.
    assert -0.05 < tree.cv_open_share_ - tree.work(X[2000:])["tail_rows"] < 0.25


def test_more_loss_means_fewer_rows_at_the_tail():
    X, y = make_moons(3000, noise=0.25, random_state=1)
    shares = [quick(tail_loss=loss).fit(X, y).work(X)["tail_rows"] for loss in (0.001, 0.01, 0.05)]
    assert shares[0] >= shares[1] >= shares[2]
    assert shares[0] > shares[2]


def test_few_rows_cannot_be_trusted_and_go_to_the_tail():
    X, y = make_moons(200, noise=0.15, random_state=0)
    assert quick(tail_loss=0.001).fit(X, y).work(X)["tail_rows"] == 1.0
    assert quick(tail_loss=0.05).fit(X, y).work(X)["tail_rows"] < 1.0


def test_a_linear_svm_ends_chains_where_it_is_better():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 60))
    y = (X[:, :20].sum(axis=1) + rng.normal(scale=2.0, size=2000) > 0).astype(int)
    paper = SVMTreeClassifier(**PAPER, random_state=0).fit(X[:400], y[:400])
    ours = SVMTreeClassifier(tail=None, random_state=0).fit(X[:400], y[:400])
    assert [node.solver for node in ours.nodes_] == ["l"]
    assert ours.score(X[400:], y[400:]) > paper.score(X[400:], y[400:])


def test_nodes_stay_where_no_plane_will_do():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 2))
    y = (np.hypot(*X.T) < 0.6).astype(int)
    tree = SVMTreeClassifier(tail=None, random_state=0).fit(X[:500], y[:500])
    assert {"h", "c"} & {node.solver for node in tree.nodes_}
    assert tree.score(X[500:], y[500:]) > 0.9
    plain = SVC(kernel="linear").fit(X[:500], y[:500])
    assert tree.score(X[500:], y[500:]) > plain.score(X[500:], y[500:]) + 0.1


def test_tail_at_a_depth_cuts_every_chain(digits):
    X, y = digits
    tree = quick(tail_at=0, tail=SVC()).fit(X[:500], y[:500])
    assert tree.n_nodes_ == 0
    assert tree.work(X)["settled"] == 0.0
    numbers = tree.tail_.predict(scaled(tree, X))
    np.testing.assert_array_equal(tree.predict(X), tree.classes_[numbers])
    assert quick(tail_at=2, tail=SVC()).fit(X[:500], y[:500]).depths_.max() <= 2


def test_the_tail_may_be_any_classifier(moons):
    X, y = moons
    for tail in (KNeighborsClassifier(5), RandomForestClassifier(20, random_state=0), RidgeClassifier(), SVC()):
        tree = quick(tail=tail, tail_at=2, probability=True).fit(X[:800], y[:800])
        settled = tree._tree.chains.labels(X[800:]) >= 0
        numbers = tree.tail_.predict(scaled(tree, X[800:]))
        np.testing.assert_array_equal(tree.predict(X[800:])[~settled], numbers[~settled])
        probabilities = tree.predict_proba(X[800:])
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        np.testing.assert_array_equal(probabilities.argmax(axis=1), tree.predict(X[800:]))
        np.testing.assert_array_equal(tree.decision_function(X[800:]) > 0, tree.predict(X[800:]) == 1)


def test_the_tail_may_be_accelerated_further():
    X, y = make_moons(3000, noise=0.3, random_state=0)
    tree = quick(tail_method="taylor_tree", tail_options={"agreement": None, "random_state": 0}, tail_at=1).fit(X, y)
    assert tree._tree.tail.answers.report.method == "taylor_tree"
    assert (tree.predict(X) == quick(tail_at=1).fit(X, y).predict(X)).mean() > 0.97


def test_rbf_chooses_its_parameters_by_cross_validation():
    X, y = make_moons(600, noise=0.1, random_state=0)
    wide = SVMTreeClassifier(random_state=0).fit(X, y)
    assert isinstance(wide.tail_, SVC)
    assert wide.tail_.C in (1.0, 10.0, 100.0)
    assert wide.score(X, y) > 0.98


def test_classes_in_any_words(digits):
    X, y = digits
    tree = quick(tail=None).fit(X[:600], y[:600])
    assert set(tree.predict(X)) <= set("abcdefghij")
    assert tree.score(X[600:], y[600:]) > 0.88


def test_scale_is_part_of_the_planes(moons):
    X, y = moons
    for scale in ("standard", "minmax"):
        tree = quick(scale=scale).fit(X, y)
        stretched = quick(scale=scale).fit(X * [1024.0, 2.0**-7], y)  # powers of two change no digit
        np.testing.assert_array_equal(tree.predict(X), stretched.predict(X * [1024.0, 2.0**-7]))
        np.testing.assert_allclose(scaled(tree, X), scaled(stretched, X * [1024.0, 2.0**-7]))
    assert scaled(quick(scale="minmax").fit(X, y), X).min(axis=0).tolist() == [0.0, 0.0]
    np.testing.assert_allclose(scaled(quick(scale="standard").fit(X, y), X).std(axis=0), 1.0)
    assert quick(scale=None).fit(X, y).score(X, y) > 0.98


def test_constant_features_do_no_harm(moons):
    X, y = moons
    padded = np.column_stack([X, np.full(len(X), 7.0), np.full(len(X), 1e-300)])
    for scale in ("standard", "minmax", None):
        np.testing.assert_array_equal(
            quick(scale=scale, tail_at=2).fit(padded, y).predict(padded),
            quick(scale=scale, tail_at=2).fit(X, y).predict(X),
        )


# -- the same tree -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{"tail": None}, PAPER, {"tail": SVC(), "tail_loss": 0.02}], ids=str)
def test_weights_are_repetition_and_order_does_not_matter(parameters):
    X, y = make_moons(150, noise=0.2, random_state=0)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    weighted = quick(**parameters).fit(X, y, sample_weight=times)
    shuffled = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), times))
    repeated = quick(**parameters).fit(X[shuffled], y[shuffled])
    for name in ("planes", "low", "high", "chain_start", "end"):
        np.testing.assert_array_equal(getattr(weighted._tree.chains, name), getattr(repeated._tree.chains, name))
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_threads_do_not_change_the_tree(digits):
    X, y = digits
    one, two = (quick(n_jobs=n, tail=SVC(C=10)).fit(X[:700], y[:700]) for n in (1, 2))
    np.testing.assert_array_equal(one._tree.chains.planes, two._tree.chains.planes)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))


def test_batches_and_single_rows_agree(digits):
    X, y = digits
    for tail in (SVC(C=10), None):
        tree = quick(tail=tail).fit(X[:700], y[:700])
        whole = tree.predict(X[700:900])
        np.testing.assert_array_equal(whole, [tree.predict(X[i : i + 1])[0] for i in range(700, 900)])
        np.testing.assert_array_equal(whole, tree.predict(np.asfortranarray(X[700:900])))
        np.testing.assert_array_equal(whole, tree.predict(X[700:900].astype(np.float32)))
        np.testing.assert_array_equal(whole, tree.predict(X[700:900].tolist()))


def test_sparse_rows(digits):
    X, y = digits
    dense = quick(tail=None).fit(X[:700], y[:700])
    from_sparse = quick(tail=None).fit(sparse.csr_matrix(X[:700]), y[:700])
    np.testing.assert_array_equal(dense.predict(X), from_sparse.predict(sparse.csr_array(X)))
    thin = np.where(np.random.default_rng(0).random(X.shape) < 0.1, X, 0.0)
    tree = quick(tail=SVC()).fit(sparse.csr_matrix(thin[:700]), y[:700])
    assert tree._tree.chains.stored
    np.testing.assert_array_equal(tree.predict(thin), tree.predict(sparse.csr_matrix(thin)))
    np.testing.assert_array_equal(tree.predict(sparse.coo_matrix(thin[:3])), tree.predict(thin[:3]))
    np.testing.assert_array_equal(tree.predict(sparse.csr_matrix(thin[:3])), tree.predict(thin[:3]))
    unsorted = sparse.csr_matrix(thin[:5])
    unsorted.indices, unsorted.data = unsorted.indices.copy(), unsorted.data.copy()
    for row in range(5):
        part = slice(unsorted.indptr[row], unsorted.indptr[row + 1])
        unsorted.indices[part], unsorted.data[part] = unsorted.indices[part][::-1], unsorted.data[part][::-1]
    unsorted.has_sorted_indices = False
    np.testing.assert_array_equal(tree.predict(unsorted), tree.predict(thin[:5]))


def test_pickles_clones_and_searches(moons):
    X, y = moons
    tree = quick(probability=True).fit(X, y)
    again = pickle.loads(pickle.dumps(tree))
    np.testing.assert_array_equal(again.predict_proba(X), tree.predict_proba(X))
    assert not hasattr(clone(tree), "classes_")
    search = GridSearchCV(quick(tail_at=2), {"greedy": [0, 1], "tail__C": [1.0, 10.0]}, cv=2).fit(X[:300], y[:300])
    assert search.best_score_ > 0.9
    pipe = make_pipeline(PolynomialFeatures(2), StandardScaler(), quick(tail=None))
    assert cross_val_score(pipe, X, y, cv=3).min() > 0.9


def test_fitting_again_forgets_the_first_tree(moons, digits):
    tree = quick().fit(*moons)
    assert hasattr(tree, "cv_open_share_")
    tree.set_params(tail=None).fit(*digits)
    assert not hasattr(tree, "cv_open_share_")
    assert tree.tail_ is None
    assert tree.n_features_in_ == 64


# -- scores and probabilities ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
@pytest.mark.parametrize("tail", [None, SVC(C=10.0)], ids=["no tail", "tail"])
def test_the_label_has_the_largest_score_and_probability(digits, multi_class, tail):
    X, y = digits
    tree = quick(tail=tail, multi_class=multi_class, probability=True).fit(X[:900], y[:900])
    labels, scores, chances = tree.predict(X), tree.decision_function(X), tree.predict_proba(X)
    assert scores.shape == chances.shape == (len(X), 10)
    assert (tree.classes_[scores.argmax(axis=1)] == labels).all()
    assert (tree.classes_[chances.argmax(axis=1)] == labels).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-12)
    assert chances.min() >= 0.0
    number = np.searchsorted(tree.classes_, y)
    loss = -np.log(chances[np.arange(len(y)), number][900:]).mean()
    assert loss < 0.6  # guessing has 2.3


def test_probabilities_of_two_classes_are_about_right():
    X, y = make_classification(6000, 8, n_informative=5, flip_y=0.1, class_sep=0.8, random_state=1)
    for tail in (None, SVC(C=1.0)):
        tree = quick(tail=tail, probability=True).fit(X[:2500], y[:2500])
        chance = tree.predict_proba(X[2500:])[:, 1]
        for low in (0.0, 0.2, 0.4, 0.6, 0.8):
            inside = (chance >= low) & (chance < low + 0.2)
            if inside.sum() > 100:
                assert abs(y[2500:][inside].mean() - chance[inside].mean()) < 0.1


def test_pair_scores_of_a_tail_are_not_class_scores():
    X, y = load_iris(return_X_y=True)
    trees = [
        quick(tail=SVC(decision_function_shape=shape), tail_at=0, probability=True).fit(X, y)
        for shape in ("ovr", "ovo")
    ]
    np.testing.assert_allclose(trees[0].decision_function(X), trees[1].decision_function(X))
    np.testing.assert_allclose(trees[0].predict_proba(X), trees[1].predict_proba(X))


def test_equal_probabilities_still_have_a_first():
    from svelto.training._svm_tree.probability import with_label_first

    chances = with_label_first(np.full((3, 3), 1 / 3), np.array([0, 1, 2]))
    np.testing.assert_array_equal(chances.argmax(axis=1), [0, 1, 2])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_margins_survive_a_far_mean(digits):
    X, y = digits
    near, far = quick(tail=None).fit(X[:500], y[:500]), quick(tail=None).fit(X[:500] + 2.0**27, y[:500])
    a, b = near.decision_function(X), far.decision_function(X + 2.0**27)
    assert np.abs(a - b).max() < 1.1  # a vote may differ where a score is next to its threshold
    assert np.median(np.abs(a - b)) < 1e-3


def test_the_docstring_tells_the_truth():
    import doctest

    import svelto.training.hull_projection
    import svelto.training.svm_tree

    for module in (svelto.training.svm_tree, svelto.training.hull_projection):
        assert doctest.testmod(module).attempted > 0
        assert doctest.testmod(module).failed == 0


def test_probability_has_to_be_asked_for(moons):
    X, y = moons
    tree = quick().fit(X, y)
    assert not hasattr(tree, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        tree.predict_proba(X)
    tree.probability = True
    with pytest.raises(ValueError, match="trained with probability=False"):
        tree.predict_proba(X)
