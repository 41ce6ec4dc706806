"""
Many rows: a small SVM for every neighbourhood
==============================================

Training one SVM takes time that grows with the square of the rows, or worse. ``LocalSVC`` trains a small one for every
neighbourhood. Forest cover types are used where the data set is at hand; two spirals, made up, where it is not.
"""

# %%
# The data set is looked for in ``$SVELTO_DATA`` and in the cache; nothing is downloaded here.
import os
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

import svelto

COVER_TYPES = "covtype.libsvm.binary.scale"


def load_rows(n):
    """Rows and labels of the cover types, or of two spirals."""
    folder = os.environ.get("SVELTO_DATA")
    if folder and any(Path(folder).glob(f"{COVER_TYPES}*")):
        data = svelto.datasets.load(COVER_TYPES, part="train")
        chosen = np.random.default_rng(0).permutation(data.X_train.shape[0])[:n]
        rows = data.X_train[chosen]
        return np.asarray(rows.todense() if hasattr(rows, "todense") else rows), data.y_train[chosen], "cover types"
    X, y = svelto.datasets.two_spirals(n, random_state=0)
    return X, y, "two spirals"


X, y, name = load_rows(34_000)
new, new_labels = X[32_000:], y[32_000:]
gamma = 32.0 if name == "cover types" else 1.0
print(f"{name}: {X.shape[1]} features")

# %%
# The same parameters for both; the one SVM stops at 4,000 rows, where it already takes longest.
sizes = (1000, 2000, 4000, 8000, 16_000, 32_000)
seconds = {"SVC": [], "LocalSVC": []}
accuracy = {"SVC": [], "LocalSVC": []}
for n in sizes:
    models = {"LocalSVC": svelto.LocalSVC(k=250, C=32, gamma=gamma, random_state=0)}
    if n <= 4000:
        models["SVC"] = SVC(C=32, gamma=gamma)
    for label, model in models.items():
        started = perf_counter()
        model.fit(X[:n], y[:n])
        seconds[label].append(perf_counter() - started)
        accuracy[label].append(model.score(new, new_labels))
        print(f"{n:6d} rows, {label}: {seconds[label][-1]:.2f} s, accuracy {accuracy[label][-1]:.2%}")

# %%
fig, axes = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
for label, colour, marker in (("SVC", "#D55E00", "s"), ("LocalSVC", "#0072B2", "o")):
    at = sizes[: len(seconds[label])]
    axes[0].loglog(at, seconds[label], marker + "-", color=colour, label=label)
    axes[1].semilogx(at, 100 * np.array(accuracy[label]), marker + "-", color=colour, label=label)
axes[0].set(xlabel="training rows", ylabel="seconds to train", title=f"{name}: time")
axes[1].set(xlabel="training rows", ylabel="accuracy on 2,000 new rows, %", title=f"{name}: accuracy")
for ax in axes:
    ax.grid(alpha=0.3)
    ax.legend()
plt.show()
