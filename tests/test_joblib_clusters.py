"""Local SVMs trained through joblib's backends for Ray and Spark, where these are installed."""

from __future__ import annotations

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_array_equal

import svelto
from svelto._crew import JoblibCrew, find_crew

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what other packages warn about
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 4))
Y = (np.sin(3 * X[:, 0]) + X[:, 1] > 0).astype(int)


@pytest.fixture
def ray():
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    yield "ray"
    ray.shutdown()


@pytest.fixture
def spark():
    pytest.importorskip("pyspark")
    joblibspark = pytest.importorskip("joblibspark")
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    joblibspark.register_spark()
    yield "spark"
    session.stop()


@pytest.mark.parametrize("name", ["ray", "spark"])
def test_workers_train_the_same_machine(name, request):
    backend = request.getfixturevalue(name)
    alone = svelto.LocalSVC(k=80, random_state=0).fit(X, Y)
    with parallel_config(backend, n_jobs=2):
        assert isinstance(find_crew(), JoblibCrew)
        together = svelto.LocalSVC(k=80, random_state=0).fit(X, Y)
    assert_array_equal(alone.decision_function(X), together.decision_function(X))
