"""
scikit-learn's own predict, made fast
=====================================

``svelto.patch_sklearn()`` is for code that calls ``predict`` and is not yours to change. The calls stay scikit-learn's,
with its checks and errors; the sum behind them is svelto's exact engine.
"""

# %%
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import SVC

import svelto
from svelto.patching import counts

X, y = make_classification(6000, n_features=20, n_informative=8, flip_y=0.1, random_state=0)
model = SVC().fit(X[:3000], y[:3000])
new = X[3000:]
print(f"{len(model.support_)} support vectors")


def milliseconds(predict, rows, repeats=5):
    """Best of some calls."""
    times = []
    for _ in range(repeats):
        started = perf_counter()
        predict(rows)
        times.append(perf_counter() - started)
    return 1e3 * min(times)


# %%
# The same method of the same object, with and without the patch; beside it what ``accelerate`` returns, which has no
# scikit-learn in front of it.
sizes = (1, 10, 100, 1000, 3000)
plain = [milliseconds(model.predict, new[:n]) for n in sizes]
expected = model.predict(new)
with svelto.patched():
    print("same labels:", (model.predict(new) == expected).all())
    patched = [milliseconds(model.predict, new[:n]) for n in sizes]
    print(counts())
own = svelto.accelerate(model, method="exact")
direct = [milliseconds(own.predict, new[:n]) for n in sizes]

# %%
fig, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for times, colour, marker, label in (
    (plain, "#D55E00", "s", "SVC.predict"),
    (patched, "#0072B2", "o", "SVC.predict, patched"),
    (direct, "#009E73", "D", "svelto.accelerate(model).predict"),
):
    ax.loglog(sizes, 1e3 * np.array(times) / np.array(sizes), marker + "-", color=colour, label=label)
ax.set(xlabel="rows of a call", ylabel="microseconds a row", title="what a row costs")
ax.grid(alpha=0.3, which="both")
ax.legend()
plt.show()
