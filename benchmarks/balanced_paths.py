"""How far is the greedy support vector tree from the best balanced one? Costs of both on small random inputs.

    python benchmarks/balanced_paths.py --markdown docs/benchmarks/balanced-paths.md

The optimum (paper S1, Algorithm 1) is taken over balanced trees. The greedy tree (Algorithm 2) is grown twice: with its
thresholds at the medians, in the class of the optimum, where it can never cost less; and with its own thresholds,
outside that class, where it can.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from svelto.engines.balanced_paths import balanced_optimum, count_calls
from svelto.engines.paper_paths import grow_paper
from svelto.path_tree import flatten

# rows, columns, height, inputs
SIZES = ((16, 6, 2, 500), (16, 6, 3, 500), (32, 8, 3, 500), (64, 12, 3, 300), (64, 8, 4, 100))
MIN_ROWS = 2


def gaussian(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(n, m))


def machine(n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Terms of a small random SVM of m support vectors, on rows that it has not seen."""
    gamma = float(rng.choice([0.1, 0.5, 2.0]))
    while True:
        svc = SVC(C=1.0, gamma=gamma).fit(rng.normal(size=(m, 2)), rng.permutation(np.arange(m) % 2))
        if len(svc.support_) == m:
            break
    return rbf_kernel(rng.normal(size=(n, 2)), svc.support_vectors_, gamma=gamma) * svc.dual_coef_


def costs(X: np.ndarray, height: int, scale: bool, seed: int) -> tuple[float, float, float]:
    """Cost of the optimum, of the greedy tree in its class, and of the greedy tree with its own thresholds."""
    X = X.astype(np.float32).astype(np.float64)  # the greedy tree works on float32: the same numbers for all
    r = X.sum(axis=1)
    best, _ = balanced_optimum(X, r, height=height, min_rows=MIN_ROWS, scale=scale)
    result = [best]
    for balanced in (True, False):
        root = grow_paper(
            X.astype(np.float32),
            np.ones((1, X.shape[1])),
            r[:, None],
            max_evals=height,
            min_rows=MIN_ROWS,
            scale=scale,
            balanced=balanced,
            rng=np.random.default_rng(seed),
        )
        result.append(float(((flatten(root, 1).predict(X) - r) ** 2).sum()))
    return result[0], result[1], result[2]


def cells(ratio: np.ndarray) -> str:
    return f"{ratio.mean():.2f} | {np.median(ratio):.2f} | {ratio.max():.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--inputs", type=int, help="at most so many inputs of a size (a quick look)")
    arguments = parser.parse_args()
    lines = [
        "# The greedy support vector tree beside the best balanced one",
        "",
        "Cost of the greedy tree divided by that of the optimum among balanced trees: mean, median and largest over "
        'random inputs. "Same class" is the greedy tree with thresholds at the medians, which can never cost less; the '
        "count says how often it did, beyond rounding. With free thresholds the tree is outside the class and can; the "
        f"count says how often. Target: the sum of all columns. Nodes of {MIN_ROWS} rows or fewer are not split.",
        "",
        "Gaussian: independent columns. SVM: terms of RBF machines on 2 features (C 1, gamma 0.1, 0.5 or 2), "
        "on rows they have not seen.",
        "",
        "Without scaling Algorithm 2 adds a column at every level even where that costs more; the optimum may stop. "
        '"Above zero tree" counts the inputs on which the greedy tree of the same class costs more than the answer 0.',
        "",
        "| terms | n | m | height | scaled | inputs | same class: mean | median | worst | below optimum "
        "| above zero tree | free: mean | median | worst | below optimum | calls of the optimum |",
        "|---" * 16 + "|",
    ]
    print(*lines, sep="\n")
    begin = time.perf_counter()
    violations = 0
    for kind in (gaussian, machine):
        for n, m, height, inputs in SIZES:
            terms = [
                kind(n, m, np.random.default_rng([n, m, k])) for k in range(min(inputs, arguments.inputs or inputs))
            ]
            for scale in (False, True):
                found = np.array([costs(X, height, scale, k) for k, X in enumerate(terms)])
                power = np.array([(X.sum(axis=1) ** 2).sum() for X in terms])
                best, same, free = found.T
                slack = 1e-12 * power
                below = int((same < best - slack).sum())
                violations += below
                lines.append(
                    f"| {'Gaussian' if kind is gaussian else 'SVM'} | {n} | {m} | "
                    f"{height} | {'yes' if scale else 'no'} | {len(terms)} | {cells(same / best)} | {below} | "
                    f"{int((same > power).sum())} | "
                    f"{cells(free / best)} | {int((free < best - slack).sum())} | "
                    f"{count_calls(n, m, height, MIN_ROWS)} |"
                )
                print(lines[-1], flush=True)
    lines += ["", f"Greedy below the optimum of its class: {violations} times.", ""]
    lines += ["Written by `python benchmarks/balanced_paths.py`.", ""]
    print(*lines[-4:], f"{time.perf_counter() - begin:.0f} s", sep="\n")
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
