"""Write the first inputs of the text targets into fuzz/corpus; those of `svelto_file` are tests/files themselves.

python fuzz/make_corpus.py
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from sklearn.svm import SVC, SVR, NuSVC, OneClassSVM

import svelto
from _common import FOLDER

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).round(2)
TWO, THREE = (X[:, 0] > 0).astype(int), np.searchsorted([-0.4, 0.4], X[:, 1]) * 5 - 3

SVMLIGHT = {
    "plain": b"1 1:0.5 2:-1 3:2\n-1 2:1e-3\n+1\n0 3:4\n",
    "comments": b"# rows\n1 1:0.5 # one\n\n-1 qid:3 2:1 7:1\r\n",
    "wide": b"1 1:1 2147483646:1\n",
    "precomputed": b"1 0:1 1:0.5 2:0.25 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1\n",
}
CSV = {
    "plain": b"0.5,-1,2\n1e-3,0,0\n",
    "header": b"x,y,z\n1,2,3\n4,5,6\n",
    "two_columns": b"1.5,2\n-1,0.25\n",
    "quirks": b"\xef\xbb\xbfa, b\r\n 1 ,2\r\n\r\n3,4",
    "precomputed": b"1,2,3,4,5,6,7,8,9,10,11,12\n",
}


def _models() -> dict[str, svelto.KernelMachine]:
    warnings.simplefilter("ignore", FutureWarning)  # probability=True is on its way out of scikit-learn
    estimators = {
        "two_classes": SVC(gamma=0.5, probability=True, random_state=0).fit(X, TWO),
        "three_classes": NuSVC(nu=0.2, kernel="poly", degree=2, coef0=1.0).fit(X, THREE),
        "linear": SVC(kernel="linear").fit(X, THREE),
        "sigmoid": SVR(kernel="sigmoid").fit(X, X[:, 0]),
        "one_class": OneClassSVM(gamma=0.5, nu=0.3).fit(X),
        "precomputed": SVC(kernel="precomputed").fit(X @ X.T, TWO),
    }
    return {name: svelto.KernelMachine.from_sklearn(model) for name, model in estimators.items()}


def _folder(target: str) -> Path:
    folder = FOLDER / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    """Write them all; the same bytes every time."""
    for name, machine in _models().items():
        machine.to_libsvm(_folder("libsvm_model") / name)
    for target, texts in (("svmlight_rows", SVMLIGHT), ("csv_rows", CSV)):
        for name, text in texts.items():
            (_folder(target) / name).write_bytes(text)


if __name__ == "__main__":
    main()
