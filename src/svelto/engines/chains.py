"""Chains of hyperplanes between classes: a row leaves a chain at the first plane that settles it.

A node of a chain has a plane w and two thresholds. A row with w.x < low is settled with outcome -1, one with
w.x > high with outcome +1, and all others go on to the next node; past the last node stands the chain's end, which is
an outcome or open. Two classes have one chain, one against one a chain for each pair of classes, one against the rest
a chain for each class.

Products are in float32. Rows lose `centre` before they are rounded, so that a large mean does not cost the differences
their digits, and thresholds are moved accordingly; planes are brought to one scale by powers of two.

Invariant: a row's label, work and trace do not depend on the batch, the threads or the instruction set, nor on whether
it arrives dense or as CSR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from scipy import sparse

from svelto import _core
from svelto._options import check_choice, check_whole
from svelto._typing import FloatArray, IntArray, Rows
from svelto.engines.arrays import padded_rows, padded_width
from svelto.engines.exact import instruction_level
from svelto.engines.native_stage import ROWS_PER_THREAD, check_outcome, pieces

CHAIN_RULES: Final = {"one_vs_one": 0, "one_vs_rest": 1}
# Duels are numbered with 16-bit places.
MOST_CLASSES: Final = 2**15 - 1
# A margin beyond this is as good as any, in spreads of a node's scores.
CLEAR_MARGIN: Final = 0.25
# Products of a row's feature and a plane's that are worth starting a thread.
WORTH_A_THREAD: Final = 2_000_000

FloatVector = np.ndarray[Any, np.dtype[np.float64]]


class ChainTrace(NamedTuple):
    """What every chain says about every row, each (n_rows, n_chains).

    outcome: -1, +1, or 0 for open. node: the deciding node, counted from the chain's first; the number of the chain's
    nodes where its end was reached. score: the deciding node's w.x (a float32
    product about the centre, with the centre's share added in float64), the last node's at the end, 0 without nodes.
    """

    outcome: np.ndarray[Any, np.dtype[np.int8]]
    node: IntArray
    score: FloatArray


@dataclass(eq=False)
class Chains:
    """Chains of hyperplanes, and who wins between the classes.

    Attributes
    ----------
    planes : ndarray of shape (n_nodes, n_features)
        Normals, chain after chain.
    low, high : ndarrays of shape (n_nodes,)
        Thresholds of w.x; -inf and +inf where a node settles nothing on that side.
    spread : ndarray of shape (n_nodes,), optional
        What a node's margins are measured in; default: ones.
    chain_start : ndarray of shape (n_chains + 1,)
        Chain c has the nodes chain_start[c] .. chain_start[c + 1]; it may have none.
    end : ndarray of shape (n_chains,)
        Outcome of rows that no node settles: -1, +1, or 0 for open.
    classes_of_chain : ndarray of shape (n_chains, 2)
        The class that outcome -1 votes for, and that +1 votes for. One against the rest: -1 and the class.
    n_classes : int
        Number of classes.
    rule : {"one_vs_one", "one_vs_rest"}
        Two classes with one chain are one against one.
    order : ndarray of shape (n_classes,), optional
        The classes in the order in which they enter the knock-out; frequent ones first saves work. Labels do not
        depend on it.
    centre : ndarray of shape (n_features,), optional
        Taken off rows before rounding; default: zeros. Not with `stored`.
    stored : bool, default=False
        Whether rows are met by their features that are not zero.
    """

    planes: FloatArray
    low: FloatVector
    high: FloatVector
    chain_start: IntArray
    end: IntArray
    classes_of_chain: IntArray
    n_classes: int
    rule: Literal["one_vs_one", "one_vs_rest"] = "one_vs_one"
    order: IntArray | None = None
    centre: FloatVector | None = None
    stored: bool = False
    spread: FloatVector | None = None
    _native: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, tuple(CHAIN_RULES))
        check_whole("n_classes", self.n_classes, 1)
        if self.n_classes > MOST_CLASSES:
            raise ValueError(f"n_classes is {self.n_classes}; expected at most {MOST_CLASSES}.")
        self.planes = np.array(self.planes, dtype=np.float64, order="C")
        if self.planes.ndim != 2 or self.planes.shape[1] == 0:
            raise ValueError(f"planes has shape {self.planes.shape}; expected (n_nodes, n_features).")
        self.classes_of_chain = _whole_numbers("classes_of_chain", self.classes_of_chain)
        if self.classes_of_chain.ndim != 2 or self.classes_of_chain.shape[1] != 2:
            raise ValueError(f"classes_of_chain has shape {self.classes_of_chain.shape}; expected (n_chains, 2).")
        n_nodes, d = self.planes.shape
        n_chains = len(self.classes_of_chain)
        order = np.arange(self.n_classes) if self.order is None else self.order
        self.low, self.high, self.spread, self.centre = (
            _shaped(name, np.array(values, dtype=np.float64), (size,))
            for name, values, size in (
                ("low", self.low, n_nodes),
                ("high", self.high, n_nodes),
                ("spread", np.ones(n_nodes) if self.spread is None else self.spread, n_nodes),
                ("centre", np.zeros(d) if self.centre is None else self.centre, d),
            )
        )
        self.chain_start, self.end, self.order = (
            _shaped(name, _whole_numbers(name, values), (size,))
            for name, values, size in (
                ("chain_start", self.chain_start, n_chains + 1),
                ("end", self.end, n_chains),
                ("order", order, self.n_classes),
            )
        )
        self._check_values()

    def _check_values(self) -> None:
        for name in ("planes", "centre"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} has NaN or infinite numbers; expected finite ones.")
        assert self.spread is not None
        bad = np.flatnonzero(~(self.spread > 0))
        if len(bad):
            raise ValueError(f"Node {bad[0]} has spread={self.spread[bad[0]]}; expected a positive number.")
        bad = np.flatnonzero(~(self.low <= self.high))
        if len(bad):
            h = bad[0]
            raise ValueError(f"Node {h} has low={self.low[h]} and high={self.high[h]}; expected low <= high.")
        start, n_nodes = self.chain_start, len(self.planes)
        if start[0] != 0 or start[-1] != n_nodes or (np.diff(start) < 0).any():
            raise ValueError(f"chain_start must rise from 0 to the number of nodes, {n_nodes}; got {start}.")
        if not np.isin(self.end, (-1, 0, 1)).all():
            raise ValueError("end has a value other than -1, 0 (open) and +1.")
        assert self.order is not None
        assert self.centre is not None
        if not np.array_equal(np.sort(self.order), np.arange(self.n_classes)):
            raise ValueError(f"order must name each of the {self.n_classes} classes once; got {self.order}.")
        if self.stored and self.centre.any():
            raise ValueError("stored=True needs a centre of zeros: features that are not stored are not read.")
        self._check_classes()

    def _check_classes(self) -> None:
        n = self.n_classes
        if self.rule == "one_vs_one":
            pairs = np.sort(self.classes_of_chain, axis=1)
            expected = np.column_stack(np.triu_indices(n, 1))
            what = f"each of the {len(expected)} pairs of {n} classes"
        else:
            pairs, expected = self.classes_of_chain, np.column_stack([np.full(n, -1), np.arange(n)])
            what = f"(-1, c) for each class c of {n}"
        by_pair = np.lexsort((pairs[:, 1], pairs[:, 0]))
        if not np.array_equal(pairs[by_pair], expected):
            raise ValueError(f"classes_of_chain must name {what} once (rule={self.rule!r}).")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_native": None}

    @property
    def n_features(self) -> int:
        """Width of the rows."""
        return int(self.planes.shape[1])

    @property
    def n_nodes(self) -> int:
        """Planes of all chains."""
        return len(self.planes)

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self.end)

    def fields(self) -> dict[str, Any]:
        """What `_core.ChainStage` reads."""
        assert self.centre is not None
        # Planes beyond the range of float32 would be infinite or zero; a power of two changes no digit.
        exponent = np.frexp(np.abs(self.planes).max(axis=1, initial=0.0))[1] - 1
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            planes = np.ldexp(self.planes, -exponent[:, None])
            moved = planes @ self.centre
            low, high = (np.ldexp(threshold, -exponent) - moved for threshold in (self.low, self.high))
            unit, offset = np.ldexp(1.0, exponent), np.ldexp(moved, exponent)
        if not np.isfinite(offset).all():
            raise ValueError("The products of planes and centre are not finite; scale the features.")
        return {
            "d": self.n_features,
            "stride": padded_width(self.n_features),
            "n_nodes": self.n_nodes,
            "n_chains": self.n_chains,
            "n_classes": int(self.n_classes),
            "rule": CHAIN_RULES[self.rule],
            "planes": padded_rows(planes if self.n_nodes else np.zeros((1, self.n_features))),
            "low": low,
            "high": high,
            "own_low": self.low,
            "own_high": self.high,
            "spread": self.spread,
            "clear_margin": CLEAR_MARGIN,
            "unit": unit,
            "offset": offset,
            "chain_start": self.chain_start,
            "end": self.end,
            "classes_of_chain": self.classes_of_chain,
            "order": self.order,
            "stored": bool(self.stored),
            "shift": self.centre,
        }

    @property
    def native(self) -> Any:
        """The native chains, made when they are first asked."""
        if self._native is None:
            self._native = _core.ChainStage(self.fields(), instruction_level())
        return self._native

    def labels(self, X: Rows, n_jobs: int | None = None, *, vote: bool = False) -> IntArray:
        """The class of each row that wins all its duels; -1 where none does, or with `vote` the class of best score.

        One against one: the class that all its chains vote for. One against the rest: the class whose chain alone has
        outcome +1, where all others have -1. Chains that cannot change the answer are not evaluated.

        Parameters
        ----------
        X : ndarray or CSR matrix
            Rows that `svelto._inputs.check_rows` would accept; there may be none.
        n_jobs : int, optional
            Threads, as elsewhere.
        vote : bool, default=False
            Whether rows without a winner get the first class with the largest of `scores`.
        """
        out: IntArray = np.empty(X.shape[0], dtype=np.int32)
        self._ask("labels", X, [out], n_jobs, vote)
        return out

    def scores(self, X: Rows, n_jobs: int | None = None) -> FloatArray:
        """Scores of classes from all chains: (n_rows, 1) for two classes with one chain, else (n_rows, n_classes).

        A chain's outcome times its margin: the distance of the deciding node's w.x from the nearer threshold, in the
        node's spread. Two classes, one against the rest: these as they are. One against one: votes, and a sum of
        margins, none beyond CLEAR_MARGIN, squashed into (-1/3, 1/3): it decides between equal votes.
        """
        width = 1 if self.n_classes == 2 and self.rule == "one_vs_one" else self.n_classes
        out: FloatArray = np.empty((X.shape[0], width))
        self._ask("scores", X, [out], n_jobs)
        return out

    def labels_and_work(self, X: Rows, n_jobs: int | None = None) -> tuple[IntArray, IntArray]:
        """`labels`, and the number of planes that were evaluated for each row."""
        out: IntArray = np.empty(X.shape[0], dtype=np.int32)
        work: IntArray = np.empty(X.shape[0], dtype=np.int32)
        self._ask("work", X, [out, work], n_jobs)
        return out, work

    def block_labels(self, X: np.ndarray[Any, Any], *, vote: bool = False) -> tuple[IntArray, int]:
        """`labels` of a small, already checked float array on this thread.

        Returns the labels and how many rows are open; -1 where a row cannot be read.
        """
        n = len(X)
        out: IntArray = np.empty(n, dtype=np.int32)
        settled, bad_row, _ = (self._native or self.native).labels_dense(X, out, vote, 1)
        return out, n - settled if bad_row < 0 else -1

    def trace(self, X: Rows, n_jobs: int | None = None) -> ChainTrace:
        """Every chain of every row; rows as for `labels`."""
        shape = (X.shape[0], self.n_chains)
        result = ChainTrace(np.empty(shape, dtype=np.int8), np.empty(shape, dtype=np.int32), np.empty(shape))
        self._ask("trace", X, result, n_jobs)
        return result

    def _rows_per_thread(self) -> int:
        """Rows that are worth a thread: it takes as long to start as some million products."""
        products = self.n_features * max(1, min(self.n_nodes, 3 * self.n_classes))
        return int(np.clip(WORTH_A_THREAD // products, ROWS_PER_THREAD, 64 * ROWS_PER_THREAD))

    def _ask(self, what: str, X: Rows, outputs: Any, n_jobs: int | None, *options: bool) -> None:
        if X.shape[1] != self.n_features:
            raise ValueError(f"The chains have {self.n_features} features; X has {X.shape[1]}.")
        for start, part, threads in pieces(X, n_jobs, self._rows_per_thread()):
            to = [array[start : start + part.shape[0]] for array in outputs]
            if sparse.issparse(part):
                outcome = getattr(self.native, what + "_csr")(
                    part.data, part.indices, part.indptr, *to, *options, threads
                )
            else:
                outcome = getattr(self.native, what + "_dense")(part, *to, *options, threads)
            check_outcome(outcome, X, start)


def _shaped(name: str, values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if values.shape != shape:
        raise ValueError(f"{name} has shape {values.shape}; expected {shape}.")
    return values


def _whole_numbers(name: str, values: Any) -> IntArray:
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu" and numbers.size:
        raise ValueError(f"{name} has dtype {numbers.dtype}; expected whole numbers.")
    if numbers.size and (numbers.min() < -(2**31) or numbers.max() >= 2**31):
        raise ValueError(f"{name} has a number beyond 32 bits.")
    return np.array(numbers, dtype=np.int32, order="C")
