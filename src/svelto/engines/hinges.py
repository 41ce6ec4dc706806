"""Hinging hyperplanes (approximate): a few dozen hinges for every row, and no branch.

    g(x) = sum_h v_h max(0, w_h.x + c_h) + w_0.x + c_0

fitted to the exact machine's own scores (`hinge_fit`) on the given rows and on rows made of them (`oracle`). Trees
spend their time finding the right linear function; this evaluates them all, which vector units do faster. All scores
share the hinges. A second layer may be made of hinges of the first one's hinges. The error scale is one number a score,
from rows that had no part in the fit.

A machine of several classes has many pair scores. Hinges may follow all of them, and vote as the machine does; or learn
its labels, one score a class (``answers="classes"``): then the distance of the best to the second says how sure they
are, and scores are asked of the exact engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Literal

import numpy as np

from svelto import _core
from svelto._inputs import Query
from svelto._options import check_choice, check_whole
from svelto._typing import FloatArray, IntArray
from svelto.engines.arrays import padded_rows, padded_width
from svelto.engines.exact import instruction_level
from svelto.engines.hinge_fit import decisive_weights, fit_class_hinges, fit_hinges
from svelto.engines.hinge_training import Hinges
from svelto.engines.native_stage import stage_cautions, stage_labels, stage_scores
from svelto.engines.packing import RULE_CODES, add_guard, add_scaling, breaks_ties
from svelto.engines.stage_costs import answer_cost, inputs_read, layer_cost, mix_cost
from svelto.engines.taylor_tree import Progress
from svelto.feature_blocks import features_read
from svelto.guard import Guard
from svelto.machine import KernelMachine

# n_hinges="auto": sizes that are tried in turn, and the size where nothing tells which is best.
SIZES: Final = (16, 32, 64, 128, 256)
UNCALIBRATED_SIZE: Final = 64
# ... and sizes that are tried for rows that smaller hinges leave open.
LAST_SIZES: Final = (512, 1024)
# Native code knows no more.
MOST_LAYERS: Final = 2
# Share of the oracle rows that hinges are fitted to; the others show the error.
FIT_SHARE: Final = 0.85
# The fit ends early where so small a part of the disagreements that are allowed is left, with no row sent on: the
# calibration rows are harder than the oracle's, and thresholds are chosen with care. So many rows are looked at.
ENOUGH: Final = 0.1
LOOKED_AT: Final = 10_000
FIRST_LOOK: Final = 1000


@dataclass(frozen=True)
class HingeOptions:
    """Options of ``method="hinges"``.

    Attributes
    ----------
    n_hinges : int, tuple of one or two int, or "auto", default="auto"
        Hinges, of each layer; "auto" doubles those of one layer while a row's expected cost falls, rows sent on
        included, and puts larger ones behind small ones where that pays.
    answers : {"auto", "scores", "classes"}, default="auto"
        What hinges learn: the machine's scores, or (three classes and more) its labels. "auto": what costs less.
    oracle_rows : int or "auto", default="auto"
        Rows made of the given ones, for the fit and its errors.
    max_epochs : int, default=10
        Times that the fit sees every row, on average: those that matter come more often.
    draw : int, default=0
        Which draw of where the fit starts and how rows follow each other; "auto" compares two.
    """

    n_hinges: int | tuple[int, ...] | Literal["auto"] = "auto"
    answers: Literal["auto", "scores", "classes"] = "auto"
    oracle_rows: int | Literal["auto"] = "auto"
    max_epochs: int = 10
    draw: int = 0

    def __post_init__(self) -> None:
        if self.n_hinges != "auto":
            _check_sizes(self.n_hinges)
        if self.oracle_rows != "auto":
            check_whole("oracle_rows", self.oracle_rows, 0, " or 'auto'")
        check_whole("max_epochs", self.max_epochs, 1)
        check_whole("draw", self.draw, 0)
        check_choice("answers", self.answers, ("auto", "scores", "classes"))


def _check_sizes(n_hinges: Any) -> None:
    """Refuse what is neither a number of hinges nor the numbers of one or two layers."""
    more = " or 'auto', or a tuple of one or two such numbers"
    if not isinstance(n_hinges, tuple):
        check_whole("n_hinges", n_hinges, 1, more)
        return
    if not 1 <= len(n_hinges) <= MOST_LAYERS:
        raise ValueError(f"n_hinges is {n_hinges!r}; expected a whole number of at least 1{more}.")
    for layer, size in enumerate(n_hinges):
        check_whole(f"n_hinges[{layer}]", size, 1)


@dataclass
class HingeStage:
    """Fitted hinges that answer with scores, or with labels where they are sure.

    Attributes
    ----------
    machine : KernelMachine
        The machine they answer for.
    hinges : Hinges
        For rows that the machine's scaling was applied to.
    error : ndarray of shape (n_outputs,)
        Error scale of each output: of scores, or of classes the scale of the distance between two.
    shift : ndarray of shape (n_features,)
        Taken off rows in double precision before they become single.
    by_class : bool
        Whether outputs are classes, not the machine's scores.
    guard : Guard, optional
        Rows that it may not know stay open, whatever the scores.
    n_read : float, optional
        Features of a dense row that cost as much as those of a usual row; None: all.
    fit_seconds : float, optional
        What the fit took; files do not keep it.
    """

    machine: KernelMachine
    hinges: Hinges
    error: FloatArray
    shift: FloatArray
    by_class: bool = False
    guard: Guard | None = None
    name: str = "hinges"
    n_read: float | None = None
    fit_seconds: float | None = field(default=None, compare=False)
    _native: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._native = _core.HingeStage(self._fields(), instruction_level())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def _fields(self) -> dict[str, Any]:
        """What native code reads: the same, padded to whole vectors, for rows that the shift was taken off."""
        hinges, machine = self.hinges, self.machine
        p = hinges.n_scores
        fields: dict[str, Any] = {
            "d": len(hinges.weights[0]),
            "n_scores": p,
            "n_classes": machine.n_classes,
            "rule": self._rule(),
            "break_ties": breaks_ties(machine),
            "n_layers": len(hinges.sizes),
            "n_hinges": np.array(hinges.sizes, dtype=np.int32),
            "shift": np.ascontiguousarray(self.shift),
            "error": np.ascontiguousarray(self.error),
        }
        for layer, (weight, bias) in enumerate(zip(hinges.weights, hinges.biases, strict=True)):
            moved = bias + self.shift @ weight if layer == 0 else bias
            fields[f"weights_{layer}"], fields[f"bias_{layer}"] = padded_rows(weight), padded_rows(moved)
        # With a single score its own column stands in front.
        fields["mix"] = padded_rows(hinges.mix if p > 1 else np.concatenate([[1.0], hinges.mix[:, 0]]))
        add_scaling(fields, machine)
        add_guard(fields, self.guard, self.shift)
        return fields

    def _rule(self) -> int:
        if self.by_class:
            return _core.DISTILLED_RULE
        return RULE_CODES["sign" if self.machine.task == "outlier" else self.machine.rule]

    @property
    def native_part(self) -> Any:
        """Itself as a part of a native cascade."""
        return self._native

    @property
    def guards_itself(self) -> bool:
        """Whether rows that the guard does not know are left open."""
        return self.guard is not None

    @property
    def n_hinges(self) -> int | tuple[int, ...]:
        """Number of hinges; of each layer where there are two."""
        sizes = self.hinges.sizes
        return sizes[0] if len(sizes) == 1 else sizes

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, and of the guard's arrays in single precision."""
        guard = {} if self.guard is None else self.guard.in_single_precision(self.shift)
        own = sum(v.nbytes for v in guard.values() if isinstance(v, np.ndarray))
        return int(sum(part.nbytes for part in self.hinges.arrays) + self.error.nbytes + self.shift.nbytes + own)

    def settle(self, query: Query, caution: float, n_jobs: int | None = None) -> IntArray:
        """Labels in vote order where the score exceeds `caution` times its error scale, -1 elsewhere."""
        return stage_labels(self._native, query, caution, n_jobs)

    def scores(self, query: Query, n_jobs: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Scores and error scales, each (n_rows, n_scores)."""
        shape = (query.rows.shape[0], len(self.error))
        scores, errors = np.empty(shape), np.empty(shape)
        stage_scores(self._native, query, (scores, errors), n_jobs)
        return scores, errors

    def on_rim(self, query: Query, n_jobs: int | None = None) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each row is on the rim of the guard, where error scales count several times."""
        errors = self.scores(query, n_jobs)[1]
        return np.asarray((errors > self.error).any(axis=1) & np.isfinite(errors).all(axis=1))

    def cautions(self, query: Query, n_jobs: int | None = None) -> tuple[IntArray, FloatArray]:
        """Labels in vote order, and the caution below which each is given; -1 and 0 where there is none."""
        n = query.rows.shape[0]
        labels, cautions = np.empty(n, dtype=np.int32), np.empty(n)
        stage_cautions(self._native, query, labels, cautions, n_jobs)
        return labels, cautions

    def cost(self, query: Query, n_jobs: int | None = None) -> dict[str, float]:
        """Dot products a row."""
        return {"dot_products_per_row": float(sum(self.hinges.sizes) + len(self.error))}

    def operations(self) -> float:
        """Cost of one row, in multiply-adds of the exact engine's inner loop."""
        p = len(self.error)
        n_inputs = len(self.shift) if self.n_read is None else self.n_read
        cost = answer_cost(self.machine, n_inputs, p, by_class=self.by_class)
        for size in self.hinges.sizes:
            cost += layer_cost(n_inputs, size + p)
            n_inputs = size
        return cost + mix_cost(n_inputs, p)


def build_hinges(
    machine: KernelMachine,
    X: FloatArray,
    options: HingeOptions,
    rows: FloatArray,
    exact: FloatArray,
    *,
    with_errors: bool,
    seed: int,
    agreement: float | None = None,
    progress: Progress = lambda step: None,
    guard: Guard | None = None,
) -> HingeStage:
    """Fit hinges to scores.

    Parameters
    ----------
    machine : KernelMachine
        The machine they stand for.
    X : ndarray of shape (n, d)
        Given rows, dense, behind the machine's scaling.
    options : HingeOptions
        How; with a number of hinges, and scores or classes.
    rows, exact : ndarray of shape (m, d) and (m, n_scores)
        Rows to fit to, and the machine's scores there.
    with_errors : bool
        Whether some of them are held back to show the error.
    seed : int
        Of all draws.
    agreement : float, optional
        Share of rows that shall agree: the fit ends as soon as far more of the rows that are held back do, without any
        caution.
    progress : callable
        Told what is being done.
    guard : Guard, optional
        Rows that it may not know stay open.

    Returns
    -------
    HingeStage
    """
    rng = np.random.default_rng([seed, 8, options.draw] if options.draw else [seed, 8])
    signs = machine.task != "regression"
    fitted = rng.random(len(rows)) < FIT_SHARE if with_errors and len(rows) > 20 else np.ones(len(rows), dtype=bool)
    held = ~fitted if (~fitted).any() else fitted
    n_hinges = UNCALIBRATED_SIZE if options.n_hinges == "auto" else options.n_hinges
    labels = _labels(machine, exact) if machine.task != "regression" else np.empty(0, dtype=np.int32)
    by_class = options.answers == "classes"

    def tell(share: float) -> bool:
        progress(f"{n_hinges} hinges, {share:.0%}")
        return False

    given: dict[str, Any] = {"epochs": options.max_epochs, "rng": rng, "progress": tell}
    if agreement is not None and with_errors and machine.task != "regression":
        look = np.flatnonzero(held)[:LOOKED_AT]
        given["enough"] = _agrees(machine, rows[look], labels[look], by_class, ENOUGH * (1.0 - agreement))
    started = perf_counter()
    if by_class:
        known = fitted & (labels >= 0)
        hinges = fit_class_hinges(rows[known], labels[known], machine.n_classes, n_hinges, **given)
        error = np.ones(machine.n_classes)
    else:
        n_classes = machine.n_classes if machine.rule == "pairs" else 0
        hinges = fit_hinges(rows[fitted], exact[fitted], n_hinges, signs=signs, n_classes=n_classes, **given)
        residual = exact[held] - hinges.scores(rows[held])
        # Each score by itself: what it is like where nothing depends on it says nothing.
        weight = decisive_weights(exact[held], n_classes) if signs else np.ones_like(residual)
        error = np.sqrt(np.average(residual**2, axis=0, weights=weight))
        error = np.maximum(error, 1e-7 * np.maximum(np.abs(exact).max(axis=0), 1e-30))
    seconds = perf_counter() - started
    shift = np.zeros(X.shape[1]) if features_read(X) < X.shape[1] else X.mean(axis=0)
    n_read = inputs_read(machine, X)
    return HingeStage(machine, hinges, error, shift, by_class, guard, n_read=n_read, fit_seconds=seconds)


def _labels(machine: KernelMachine, scores: Any) -> IntArray:
    """Labels of scores in vote order, without any caution."""
    from svelto.cascade import settled_labels

    scores = np.ascontiguousarray(scores, dtype=np.float64)
    return settled_labels(machine, scores, np.zeros_like(scores))


def _agrees(
    machine: KernelMachine, rows: FloatArray, labels: IntArray, by_class: bool, share: float
) -> Callable[[Hinges], bool]:
    """Whether hinges give no more than a share of rows another label."""

    def agrees(hinges: Hinges) -> bool:
        # A few rows tell most of the hinges that do not.
        for some in (slice(FIRST_LOOK), slice(None)):
            scores = hinges.scores(rows[some])
            own = scores.argmax(axis=1) if by_class else _labels(machine, scores)
            if np.count_nonzero(own != labels[some]) > share * len(rows):
                return False
        return True

    return agrees


def whole_vectors(n_hinges: int, n_outputs: int) -> int:
    """As many hinges or a few more, so that with the outputs' linear parts they fill vectors."""
    return padded_width(n_hinges + n_outputs - 1) - n_outputs


def check_hinged(machine: KernelMachine, options: HingeOptions) -> None:
    """Refuse a kernel that the method cannot serve."""
    name = machine.kernel.name
    if options.answers == "classes" and (machine.task != "classification" or machine.n_classes < 3):
        raise ValueError("answers='classes' is for machines of three classes and more; use answers='scores'.")
    if name == "linear":
        raise ValueError("A linear machine is already one product a score; hinges cannot beat it. Use method='exact'.")
    if not machine.kernel.has_native_code:
        raise NotImplementedError(f"Hinges need a kernel on vectors, got {name!r}. Use method='exact' or 'sv_tree'.")
