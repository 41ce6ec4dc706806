"""
Which stage settles which row
=============================

A cascade asks its cheapest stage first. A row that the stage is sure about is settled there; what is left goes on, in
the end to the exact engine. Here every pixel of the plane is asked on its own, and coloured by who answered.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto

X, y = make_moons(30_000, noise=0.35, random_state=1)
svc = SVC(C=10, gamma=8).fit(X[:6000], y[:6000])
exact = svelto.accelerate(svc, method="exact")  # the same labels as svc, sooner
fast = svelto.accelerate(svc, X[6000:24_000], method="hinges", agreement=0.999, random_state=0)
print(fast.report)

# %%
# ``work`` says what a call costs: the share of rows that each stage settles. Asked about one row it says who settled
# it. Rows far from all rows that the stages were built on are the guard's: nothing was ever checked there, so the exact
# engine answers, however sure a stage may be.
size = 54
side = np.linspace(-2.5, 3.5, size), np.linspace(-2.2, 2.7, size)
pixels = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)


def settled_by(row):
    """Name of the stage that answers a row."""
    work = fast.work(row[None])
    return "guard" if work["guarded"] else max(work["stages"], key=work["stages"].get)


stages = [name for name in fast.work(X[:1])["stages"] if name != "exact"]
names = [*stages, "exact", "guard"]
numbers = np.array([names.index(settled_by(row)) for row in pixels]).reshape(size, size)

# %%
# Along the boundary, where a small error would change the label, more careful stages are asked. Outside of the data it
# is the exact engine that answers.
colours = [*["#56B4E9", "#009E73", "#CC79A7"][: len(stages)], "#D55E00", "#DDDDDD"]
fig, ax = plt.subplots(figsize=(9.5, 4.4), layout="constrained")
ax.pcolormesh(*side, numbers, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(names) - 0.5, rasterized=True)
ax.contour(*side, exact.decision_function(pixels).reshape(size, size), [0.0], colors="black", linewidths=1.5)
ax.plot(*X[24_000:24_400].T, ".", color="black", ms=2, alpha=0.6)
shares = {**fast.work(X[24_000:])["stages"], "guard": fast.work(X[24_000:])["guarded"]}
shares["exact"] -= shares["guard"]
legend = [Patch(facecolor=c, label=f"{n}: {shares[n]:.2%} of new rows") for c, n in zip(colours, names, strict=True)]
fig.legend(handles=legend, loc="outside right upper", fontsize=9, title="settled by")
ax.set(xlabel="feature 1", ylabel="feature 2", title="black line: the machine's boundary; dots: new rows")
plt.show()
