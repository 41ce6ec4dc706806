"""Hinging hyperplanes for tests: their definition, made-up ones with rows, and native code asked about them.

Small integers as data make every sum exact, so answers are equal and not only close, on every instruction level.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from scipy import sparse

from svelto import _core
from svelto.engines.arrays import aligned_zeros, padded_width
from svelto.engines.packing import RULE_CODES

LEVELS = _core.available_levels()
RULES = {**RULE_CODES, "distilled": _core.DISTILLED_RULE}


@dataclass(frozen=True)
class Layer:
    """Hinges max(0, inputs @ planes + offsets), and what the inputs add to the scores."""

    planes: np.ndarray
    offsets: np.ndarray
    to_scores: np.ndarray


@dataclass(frozen=True)
class Net:
    """Layers, then what the last hinges add to the scores."""

    layers: tuple[Layer, ...]
    mix: np.ndarray
    intercept: np.ndarray
    error: np.ndarray
    rule: str
    shift: np.ndarray

    @property
    def n_scores(self):
        return len(self.intercept)

    @property
    def n_classes(self):
        return {
            "pairs": round((1 + np.sqrt(1 + 8 * self.n_scores)) / 2),
            "argmax": self.n_scores,
            "distilled": self.n_scores,
            "sign": 0,
            "value": 0,
        }[self.rule]


def slow_scores(net, X):
    """The definition, written to be read. Never optimise this one."""
    inputs, scores = X - net.shift, net.intercept
    for layer in net.layers:
        scores = scores + inputs @ layer.to_scores
        inputs = np.maximum(0, inputs @ layer.planes + layer.offsets)
    return scores + inputs @ net.mix


def slow_labels(net, scores, caution):
    """Labels of scores: by _core.settle, or the best class where it is far enough from the second."""
    labels = np.empty(len(scores), dtype=np.int32)
    bounds = caution * np.tile(net.error, (len(scores), 1))
    if net.rule != "distilled":
        _core.settle(scores, bounds, RULES[net.rule], net.n_classes, False, labels)
        return labels
    *_, second, best = np.sort(scores, axis=1).T
    return np.where(best - second > bounds[:, 0], scores.argmax(axis=1), -1)


def fields_of(net, break_ties=False):
    """The arrays that native code reads."""
    n = net.n_scores
    arrays = {
        "d": len(net.shift),
        "n_scores": n,
        "n_classes": net.n_classes,
        "rule": RULES[net.rule],
        "break_ties": break_ties,
        "scaling_form": 0,
        "n_layers": len(net.layers),
        "n_hinges": np.array([len(layer.offsets) for layer in net.layers], dtype=np.int32),
        "shift": net.shift,
        "error": net.error,
    }
    for number, layer in enumerate(net.layers):
        n_inputs, n_hinges = layer.planes.shape
        width = padded_width(n + n_hinges)
        weights, bias = aligned_zeros((n_inputs, width), np.float32), aligned_zeros((width,), np.float32)
        weights[:, : n + n_hinges] = np.hstack([layer.to_scores, layer.planes])
        bias[n : n + n_hinges] = layer.offsets
        if number == 0:
            bias[:n] = net.intercept
        arrays[f"weights_{number}"], arrays[f"bias_{number}"] = weights, bias
    if n == 1:
        mix = aligned_zeros((width,), np.float32)
        mix[0], mix[1 : 1 + n_hinges] = 1, net.mix[:, 0]
    else:
        mix = aligned_zeros((n_hinges, padded_width(n)), np.float32)
        mix[:, :n] = net.mix
    return {**arrays, "mix": mix}


def random_net(rule, n_scores, d, n_hinges, seed=0, n=150, wide=3):
    """Hinges and rows of small integers; rows are half zeros."""
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        return rng.integers(-wide, wide + 1, size=shape).astype(float)

    layers, n_inputs = [], d
    for size in n_hinges:
        layers.append(Layer(numbers(n_inputs, size), numbers(size), numbers(n_inputs, n_scores)))
        n_inputs = size
    mix, intercept = numbers(n_inputs, n_scores), numbers(n_scores)
    X = numbers(n, d) * (rng.random((n, d)) < 0.5)
    net = Net(tuple(layers), mix, intercept, rng.integers(1, 5, size=n_scores).astype(float), rule, np.zeros(d))
    # At caution 1 some rows are settled and some are not.
    order = np.sort(slow_scores(net, X), axis=1)
    gaps = np.abs(order[:, -1] - order[:, -2] if rule in ("argmax", "distilled") else order[:, 0])
    return replace(net, error=net.error * np.ceil(np.median(gaps) / net.error[0])), X


def blurred(net, X, seed=0):
    """The same with numbers that round."""
    rng = np.random.default_rng(seed)

    def blur(values):
        return values + rng.normal(size=values.shape) / 4

    layers = tuple(Layer(*(blur(getattr(layer, part.name)) for part in fields(Layer))) for layer in net.layers)
    blurry = replace(net, layers=layers, mix=blur(net.mix), intercept=blur(net.intercept), error=net.error / 3)
    return blurry, X + rng.normal(size=X.shape) * (X != 0)


def call(method, X, *outputs, scale=False, n_threads=1):
    """Asks about dense or CSR rows; all of them must be readable."""
    stage, name = method
    if sparse.issparse(X):
        outcome = getattr(stage, f"{name}_csr")(X.data, X.indices, X.indptr, *outputs, n_threads)
    else:
        outcome = getattr(stage, f"{name}_dense")(X, *outputs, scale, n_threads)
    assert outcome[1:] == (-1, 0)
    return outcome[0]


def ask(net, X, level=LEVELS[-1], caution=1.0, n_threads=1):
    """Labels and scores."""
    stage = _core.HingeStage(fields_of(net), level)
    n = X.shape[0]
    labels, scores, errors = np.empty(n, dtype=np.int32), np.empty((n, net.n_scores)), np.empty((n, net.n_scores))
    settled = call((stage, "labels"), X, labels, caution, n_threads=n_threads)
    assert settled == (labels >= 0).sum()
    call((stage, "scores"), X, scores, errors, n_threads=n_threads)
    np.testing.assert_array_equal(errors, np.tile(net.error, (n, 1)))
    return labels, scores


def ask_cautions(net, X, level=LEVELS[-1], n_threads=1):
    """Labels, and the cautions at which they end."""
    labels, cautions = np.empty(X.shape[0], dtype=np.int32), np.empty(X.shape[0])
    stage = _core.HingeStage(fields_of(net), level)
    settled = call((stage, "caution"), X, labels, cautions, n_threads=n_threads)
    assert settled == (labels >= 0).sum()
    return labels, cautions


def same(got, expected):
    """Equal, array by array."""
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
