"""LocalSVC and KNNSVC: weights of classes, parameters changed after training, failures that leave no trace."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import svelto
from svelto.training import local as local_module

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5))
Y = (X[:, 0] + 0.3 * RNG.normal(size=400) > 0).astype(int)
LOCAL = svelto.LocalSVC(k=50, n_jobs=1, random_state=0)


@pytest.mark.parametrize("options", [{"k": "auto"}, {"k": 50, "probability": True}])
def test_class_weights_name_labels(options):
    """Machines trained on the way to another weigh the same classes."""
    names = np.array(["no", "yes"])
    machines = [
        svelto.LocalSVC(class_weight=weight, n_jobs=1, random_state=0, **options).fit(X, labels)
        for weight, labels in (({"no": 20.0}, names[Y]), ({0: 20.0}, Y), ({1: 20.0}, Y + 1), ({0: 20.0, 1: 1.0}, Y))
    ]
    plain = svelto.LocalSVC(n_jobs=1, random_state=0, **options).fit(X, Y)
    for machine in machines[1:]:
        assert_array_equal(machine.decision_function(X), machines[0].decision_function(X))
        assert getattr(machine, "cv_accuracy_", None) == getattr(machines[0], "cv_accuracy_", None)
        assert machine._odds == machines[0]._odds
    assert not np.array_equal(plain.decision_function(X), machines[0].decision_function(X))


def test_balanced_where_a_part_lacks_a_class():
    labels = Y.copy()
    labels[0] = 2  # one row: some folds have none of it
    assert svelto.LocalSVC(class_weight="balanced", n_jobs=1, random_state=0).fit(X, labels).k_ > 0
    for seed in range(4):
        clone(LOCAL).set_params(class_weight="balanced", probability=True, random_state=seed).fit(X, labels)
    grown = clone(LOCAL).set_params(class_weight="balanced").partial_fit(X[:200], Y[:200], classes=[0, 1, 2])
    factors = 200 / (2 * np.bincount(Y[:200]))
    np.testing.assert_allclose(grown._data.factors, [*factors, 1.0])


@pytest.mark.parametrize("estimator", [LOCAL, svelto.KNNSVC(k=50, n_jobs=1)], ids=lambda e: type(e).__name__)
def test_classes_of_weight_zero_are_left_out(estimator):
    three = Y + 2 * (X[:, 1] > 1.0)
    machine = clone(estimator).set_params(class_weight={0: 1.0, 1: 1.0, 2: 0.0, 3: 0.0}).fit(X, three)
    assert set(machine.predict(X)) == {0, 1}
    kept = clone(estimator).fit(X[three < 2], three[three < 2])
    assert_array_equal(machine.predict(X), kept.predict(X))
    if isinstance(machine, svelto.LocalSVC):  # later rows of such a class say nothing either
        expected = machine.decision_function(X)
        assert_array_equal(machine.partial_fit(X[three == 2], three[three == 2]).decision_function(X), expected)
    with pytest.raises(ValueError, match="class_weight leaves rows of one class alone"):
        clone(estimator).set_params(class_weight={0: 0.0}).fit(X, Y)
    with pytest.raises(ValueError, match="class_weight times sample_weight is negative or not finite"):
        clone(estimator).set_params(class_weight={0: 1e200}).fit(X, Y, np.full(400, 1e200))


def test_features_stay_weighed_whatever_is_set_later():
    wide = np.hstack([X, RNG.normal(scale=2.0, size=(400, 20))])
    machine = clone(LOCAL).set_params(metric="learned").fit(wide, Y)
    expected, work = machine.decision_function(wide), machine.work(wide)
    machine.set_params(metric="euclidean")
    assert_array_equal(machine.decision_function(wide), expected)
    assert machine.work(wide) == work


def test_new_rows_need_the_kernel_of_the_old_ones():
    machine = clone(LOCAL).fit(X, Y)
    expected = machine.decision_function(X)
    for change in ({"kernel": "linear"}, {"kernel": "poly"}, {"degree": 2}):
        with pytest.raises(ValueError, match=r"earlier rows were trained with KernelChoice.*Use fit"):
            clone(machine).fit(X, Y).set_params(**change).partial_fit(X[:5], Y[:5])
    assert_array_equal(machine.set_params(C=2.0).decision_function(X), expected)


def test_a_small_first_batch_does_not_fix_the_size_of_neighbourhoods():
    with pytest.warns(UserWarning, match="k is 50, but there are 10 rows"):
        machine = clone(LOCAL).partial_fit(X[:10], Y[:10], classes=[0, 1])
    assert machine.k_ == 10
    machine.partial_fit(X[10:300], Y[10:300])
    assert (machine.k_, machine.k_prime_) == (50, 12)
    assert_array_equal(machine.decision_function(X), clone(LOCAL).fit(X[:300], Y[:300]).decision_function(X))


def test_k_prime_near_the_number_of_rows():
    machine = svelto.LocalSVC(k_prime=80, n_jobs=1, random_state=0).fit(X[:100], Y[:100])
    assert machine.k_prime_ <= 80 <= machine.k_


def test_limits_of_steps():
    for limit, message in ((0, "max_iter is 0; expected -1, for no limit that matters, or at least 1"), (-2, "is -2")):
        with pytest.raises(ValueError, match=message):
            clone(LOCAL).set_params(max_iter=limit).fit(X, Y)
    expected = clone(LOCAL).fit(X, Y).decision_function(X)
    assert_array_equal(clone(LOCAL).set_params(max_iter=2**70).fit(X, Y).decision_function(X), expected)


@pytest.mark.parametrize("estimator", [LOCAL, svelto.KNNSVC(k=50, n_jobs=1)], ids=lambda e: type(e).__name__)
def test_rows_are_copied(estimator):
    rows = X.copy()
    machine = clone(estimator).fit(rows, Y)
    expected = machine.decision_function(X)
    rows *= 100.0
    assert_array_equal(machine.decision_function(X), expected)


def test_a_fit_that_ends_early_leaves_no_trace(monkeypatch):
    machine = svelto.LocalSVC(n_jobs=1, random_state=0).fit(X, Y)
    expected, tried = machine.decision_function(X), machine.cv_accuracy_
    with pytest.raises(ValueError, match=r"y holds 1 class \(0\)"):
        machine.fit(X[:, :3], 0 * Y)

    @contextmanager
    def interrupting(title):
        def tell(step, share=0.0):
            if "models trained" in step:
                raise KeyboardInterrupt

        yield tell

    monkeypatch.setattr(local_module, "bar", interrupting)
    for fit in (machine.fit, machine.partial_fit):
        rows = X[:50, :3] if fit == machine.fit else X[:50]
        with pytest.raises(KeyboardInterrupt):
            fit(rows, Y[:50])
    assert machine.n_features_in_ == 5
    assert machine.cv_accuracy_ is tried
    assert_array_equal(machine.decision_function(X), expected)


def test_many_classes_take_memory_for_their_vectors_alone():
    labels = RNG.integers(40, size=400)
    machine = clone(LOCAL).fit(X, labels)
    fields = machine._machines.fields()
    assert len(fields["coef"]) == len(fields["place"]) == machine.n_support_
    assert machine.predict(X).shape == (400,)


@pytest.mark.parametrize(
    ("classes", "message"), [([], "classes holds 0 class;"), ([0], r"classes holds 1 class \(0\);")]
)
def test_too_few_classes(classes, message):
    with pytest.raises(ValueError, match=message + " expected at least two classes"):
        clone(LOCAL).partial_fit(X, Y, classes=classes)


@pytest.mark.parametrize("gamma", ["scale", "local"])
@pytest.mark.parametrize("metric", ["euclidean", "learned"])
def test_tiny_features(metric, gamma):
    machine = clone(LOCAL).set_params(metric=metric, gamma=gamma).fit(X * 1e-155, Y)
    assert machine.score(X * 1e-155, Y) > 0.8
