"""Where `TUNED` in _cases.py comes from: cross-validation of C and gamma on training rows alone.

python benchmarks/tune.py usps pendigits
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.svm import SVC

from _cases import DATASETS, SEED, split_dataset

ROWS, FOLDS = 1500, 3
COSTS = (1.0, 8.0, 32.0)
# Around 1 / (d var(X)), the power of two next to scikit-learn's gamma="scale".
FACTORS = (0.25, 1.0, 4.0, 16.0)


def tune(name: str) -> GridSearchCV:
    X, y, _, _ = split_dataset(name)
    X, _, y, _ = train_test_split(X, y, train_size=min(ROWS, len(y) - 1), stratify=y, random_state=SEED)
    variance = X.multiply(X).mean() - X.mean() ** 2 if hasattr(X, "multiply") else X.var()
    middle = 2.0 ** np.round(np.log2(1.0 / (X.shape[1] * variance)))
    grid = {"C": COSTS, "gamma": [middle * factor for factor in FACTORS]}
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    return GridSearchCV(SVC(), grid, cv=folds).fit(X, y)


if __name__ == "__main__":
    for name in sys.argv[1:] or DATASETS:
        search = tune(name)
        C, gamma = search.best_params_["C"], search.best_params_["gamma"]
        print(f'"{name}": ({C:g}, 2.0**{np.log2(gamma):g}),  # {search.best_score_:.4f}', flush=True)
