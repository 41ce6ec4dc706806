"""What is predicted: data sets and parameters of the pages about one method; svelto.suite.machines has the rest."""

from __future__ import annotations

from pathlib import Path

from svelto.suite.machines import SEED, Case, kept, make_case, split_dataset

__all__ = ["DATASETS", "SEED", "TUNED", "Case", "kept", "load_case", "make_case", "split_dataset"]

DATASETS = (
    "ijcnn1",
    "a9a",
    "w8a",
    "letter.scale",
    "usps",
    "dna.scale",
    "satimage.scale",
    "pendigits",
    "covtype.libsvm.binary.scale",
)

# (C, gamma); no test row was used to choose them. dna, letter and satimage: from memory of Hsu & Lin, "A comparison of
# methods for multiclass support vector machines" (2002), not checked against the paper. ijcnn1: the sharp machine that
# the project's other pages use. The others: `python benchmarks/tune.py` (cross-validation on 1,500
# training rows).
TUNED = {
    "ijcnn1": (16.0, 0.5),
    "a9a": (8.0, 2.0**-6),
    "w8a": (32.0, 2.0**-5),
    "letter.scale": (16.0, 4.0),
    "usps": (1.0, 2.0**-7),
    "dna.scale": (8.0, 2.0**-6),
    "satimage.scale": (16.0, 1.0),
    "pendigits": (8.0, 2.0**-14),
    "covtype.libsvm.binary.scale": (32.0, 2.0**-2),
}


def load_case(name: str, *, tuned: bool, folder: Path | None) -> Case:
    """Case of a named data set: LIBSVM's default parameters (C=1, gamma=1/d) or the tuned ones."""
    X_train, y_train, X_test, y_test = split_dataset(name)
    C, gamma = 1.0, 1.0 / X_train.shape[1]
    if tuned:
        if name not in TUNED:
            raise ValueError(f"No tuned parameters for {name!r}; there are some for {', '.join(TUNED)}.")
        C, gamma = TUNED[name]
    return make_case(name, X_train, y_train, X_test, y_test, C=C, gamma=gamma, folder=folder)
