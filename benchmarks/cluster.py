"""Local SVMs on a cluster: scaling, what workers lend each other, and a billion rows on paper.

python benchmarks/cluster.py --markdown docs/benchmarks/cluster.md
python benchmarks/cluster.py --only overlap
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

import svelto
from _environment import describe
from _parts import command_of, measured, parser_of, write_page
from svelto import datasets
from svelto.training._local.cover import find_cover
from svelto.training._local.neighbours import NeighbourIndex
from svelto.training._local.regions import Regions, radii, reaches
from svelto.training._local.train import TrainingData, train_svms

Lines = Iterator[list[str]]
LOCAL = {"k": 200, "C": 10.0, "random_state": 0}
SETTING = """CoverType, k = 200, C = 10, gamma by neighbourhood. Workers are processes of this machine with one thread
each; more of them than it has cores show what the exchange costs, not what a cluster gains."""
N_TEST = 25_000
# The plan: rows, features, workers, threads of each, bytes a second of a worker's network.
PLAN = {"rows": 1e9, "features": 54, "workers": 100, "threads": 16, "network": 1e9}


def rows_and_labels(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    bunch = datasets.load("covtype.libsvm.binary.scale", part="whole", dense=True)
    order = np.random.default_rng(0).permutation(len(bunch.y_train))
    test, rest = order[:N_TEST], order[N_TEST : N_TEST + n]
    return bunch.X_train[rest], bunch.y_train[rest], bunch.X_train[test]


def scaling() -> Lines:
    """Seconds of training and of answering 25,000 rows; every machine is compared with the first."""
    for n in (100_000, 556_012):
        X, y, X_test = rows_and_labels(n)
        first, alone = timed(svelto.LocalSVC(n_jobs=1, **LOCAL).fit, X, y)
        expected, asking = timed(first.predict, X_test)
        yield [f"{n:,}", "one process, 1 thread", f"{alone:.1f}", "1.0", f"{asking:.2f}", ""]
        for n_workers in (1, 2, 4):
            with (
                LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                svelto.LocalSVC(**LOCAL).fit(X[:2000], y[:2000], client=client)  # workers import what they need
                together, training = timed(trained_by, client, X, y)
                dask.config.set({"distributed.admin.large-graph-warning-threshold": "100MB"})
                blocks = da.from_array(X_test, chunks=(len(X_test) // 8, -1))
                together.predict(blocks).compute()  # sends the machine, and builds its search
                labels, asking = timed(together.predict(blocks).compute)
            same = np.array_equal(labels, expected) and np.array_equal(
                first._machines.models.coef, together._machines.models.coef
            )
            yield [
                f"{n:,}",
                f"{n_workers} worker{'s' if n_workers > 1 else ''}",
                f"{training:.1f}",
                f"{alone / training:.2f}",
                f"{asking:.2f}",
                "same to the last bit" if same else "DIFFERENT",
            ]


def overlap() -> Lines:
    """Rows that workers hold, beside all rows, and neighbourhoods that are complete where their centre is."""
    X, _, _ = rows_and_labels(556_012)
    index = NeighbourIndex(X, n_jobs=2)
    centres = np.random.default_rng(0).permutation(len(X))[:4_000]
    for k in (50, 200, 1000):
        neighbours = index.query(X[centres], k)[0]
        for n_regions in (2, 4, 16, 64, 256):
            some, radius = radii(X, k, 2)
            regions = Regions.cut(X, n_regions, float(np.median(radius)))
            reach = reaches(regions, some, radius)
            region = regions.region_of(X[centres])
            held, complete = 0, 0
            for r in range(len(regions)):
                numbers = regions.lent(X, r, reach[r])
                is_held = np.zeros(len(X), dtype=bool)
                is_held[numbers] = True
                held += len(numbers)
                complete += int(is_held[neighbours[region == r]].all(axis=1).sum())
            yield [f"{k}", f"{len(regions)}", f"{held / len(X):.2f}", f"{100 * complete / len(centres):.1f}"]


def plan() -> Lines:
    """A billion rows like CoverType's, from what one thread needs here."""
    search = {}
    for n in (139_003, 556_012):
        X, y, _ = rows_and_labels(n)
        index, building = timed(indexed, X)
        order = np.random.default_rng(0).permutation(n)
        search[n] = timed(index.query, X[order[:5_000]], 200)[1] / 5_000
    codes = (y == y.max()).astype(np.int32)
    searching, query = [], index.query

    def watched(*arguments, **options):
        answer, seconds = timed(partial(query, **options), *arguments)
        searching.append(seconds)
        return answer

    index.query = watched
    cover, covering = timed(find_cover, index, order, 200, 50)
    accept = (covering - sum(searching)) / cover.n_asked
    asked, centres = cover.n_asked / n, len(cover.centres) / n
    data = TrainingData(X, codes, None, None, 1.0)
    some = cover.neighbours[:3_000]
    options = svelto.LocalSVC(n_jobs=1, **LOCAL)._checked()
    fitting = timed(train_svms, options, data, some, False, None, lambda step, share=0.0: None)[1]
    fit = fitting / len(some)
    rows, d, threads = PLAN["rows"], PLAN["features"], PLAN["workers"] * PLAN["threads"]
    # A worker searches among its own rows only; a search grows by the same step for every doubling of them.
    step = (search[556_012] - search[139_003]) / 2
    among = rows / PLAN["workers"] * 1.3
    one_search = search[556_012] + step * np.log2(among / 556_012)
    seconds = {
        "exchange": rows * d * 8 * 1.3 / PLAN["workers"] / PLAN["network"],
        "trees": building / 556_012 / np.log2(556_012) * among * np.log2(among) / PLAN["threads"],
        "neighbours": rows * asked * one_search / threads,
        "svms": rows * centres * fit / threads,
    }
    yield ["rows, features", f"{rows:.0e}, {d}", f"{rows * d * 8 / 1e9:.0f} GB in all"]
    yield ["workers, threads of each, network", f"{PLAN['workers']}, {PLAN['threads']}", "1 GB/s each"]
    yield ["rows of a worker, a third lent", f"{among:.1e}", f"{among * d * 8 / 1e9:.1f} GB"]
    yield ["rows exchanged between workers", f"{seconds['exchange']:.0f} s", f"{rows * d * 8 * 1.3 / 1e9:.0f} GB moved"]
    yield ["trees built", f"{seconds['trees']:.0f} s", f"{1e6 * building / 556_012:.2f} us a row here"]
    yield ["rows asked for 200 neighbours", f"{rows * asked:.2e}", f"{1e6 * one_search:.0f} us each, one thread"]
    yield ["neighbours found", f"{seconds['neighbours']:.0f} s", f"{1e6 * search[556_012]:.0f} us among 556,012"]
    yield ["neighbours told to who covers", f"{rows * asked * 50 * 4 / 1e9:.0f} GB", "50 of 200, 4 bytes each"]
    seconds["accepted"] = rows * asked * accept
    yield ["centres accepted, one after the other", f"{seconds['accepted']:.0f} s", f"{1e6 * accept:.1f} us each"]
    yield ["SVMs trained", f"{seconds['svms']:.0f} s", f"{rows * centres:.1e} neighbourhoods of {1e6 * fit:.0f} us"]
    yield ["training, all of it", f"{sum(seconds.values()):.0f} s", "with every worker busy"]


def trained_by(client, X, y):
    return svelto.LocalSVC(**LOCAL).fit(X, y, client=client)


def indexed(X):
    return NeighbourIndex(X, n_jobs=1)


def timed(call, *arguments):
    started = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - started


PARTS = {
    "scaling": ("Scaling", scaling, ["rows", "", "training s", "times one thread", "25,000 rows s", ""]),
    "overlap": ("What workers lend", overlap, ["k", "workers", "rows held / rows", "complete %"]),
    "plan": ("A billion rows, on paper", plan, ["", "", ""]),
}


def main() -> None:
    given = parser_of(__doc__, PARTS).parse_args()
    facts = describe()
    where = f"{facts['cpu']}, {facts['cores']} cores, commit {facts['commit']}"
    head = f"# Local SVMs on a cluster\n\nWritten by `{command_of('cluster.py', given)}`. {where}.\n\n{SETTING}"
    write_page([head, *(section for _, section in measured(PARTS, given))], given)


if __name__ == "__main__":
    main()
