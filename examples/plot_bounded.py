"""
A sum that stops when the rest cannot matter
============================================

``method="bounded"`` gives the machine's label, always, and leaves out kernel values that cannot change it. The first
picture follows the sum of two rows; the second shows how many kernel values every place of the plane needs.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto

GAMMA = 10.0
X, y = make_moons(3000, noise=0.25, random_state=0)
svc = SVC(C=1, gamma=GAMMA).fit(X[:2000], y[:2000])
vectors, weights = svc.support_vectors_, svc.dual_coef_[0]
print(f"{len(vectors)} support vectors")

# %%
# The idea, written out: vectors are added in the order of their distance from a reference c near the row. Of those left
# only the distance from c is known, and the triangle inequality bounds their kernel values, so the score lies in an
# interval. The sum may stop where the interval does not contain zero.


def interval(x, centre):
    """Interval of the score after 0, 1, 2, ... kernel values."""
    far = np.linalg.norm(vectors - centre, axis=1)
    order = np.argsort(far)
    a, far, apart = weights[order], far[order], np.linalg.norm(x - centre)
    terms = a * np.exp(-GAMMA * ((vectors[order] - x) ** 2).sum(axis=1))
    largest = a * np.exp(-GAMMA * np.maximum(far - apart, 0.0) ** 2)
    smallest = a * np.exp(-GAMMA * (far + apart) ** 2)
    rest = [
        np.append(np.cumsum(part[::-1])[::-1], 0.0)
        for part in (np.minimum(largest, smallest), np.maximum(largest, smallest))
    ]
    known = np.append(0.0, np.cumsum(terms)) + svc.intercept_[0]
    return known + rest[0], known + rest[1]


fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
rows = {"a row far from the boundary": np.array([-0.8, 0.8]), "a row near the boundary": np.array([0.4, 0.22])}
for ax, (name, row) in zip(axes, rows.items(), strict=True):
    low, high = interval(row, centre=row + 0.05)
    stop = int(np.argmax((low > 0) | (high < 0)))
    ax.fill_between(range(len(low)), low, high, color="#56B4E9", alpha=0.6, label="where the score may be")
    ax.axhline(svc.decision_function(row[None])[0], color="black", lw=1, label="the score")
    ax.axhline(0.0, color="gray", lw=0.8, ls=":")
    ax.axvline(stop, color="#D55E00", lw=2, label=f"certain after {stop} values")
    ax.set(title=name, xlabel="kernel values added", ylim=(-6, 6))
    ax.legend(loc="lower right", fontsize=8)
axes[0].set_ylabel("score")
plt.show()

# %%
# The method itself. With ``save="evaluations"`` it asks for as few kernel values as it can; where a value is dear (a
# Python function on strings or graphs), that is what counts.
fast = svelto.accelerate(svc, X[:2000], method="bounded", save="evaluations", random_state=0)
new = X[2000:]
print("equal labels:", (fast.predict(new) == svc.predict(new)).all())
needed = fast.work(new)["kernel_evaluations_per_row"]
print(f"{needed:.1f} of {len(vectors)} kernel values a row; promise: {fast.report.promise}")

size = 28
side = np.linspace(-1.8, 2.8, size), np.linspace(-1.4, 1.9, size)
grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
values = np.array([fast.work(row[None])["kernel_evaluations_per_row"] for row in grid]).reshape(size, size)
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
image = ax.pcolormesh(*side, values, cmap="cividis", norm="log", rasterized=True)
ax.contour(*side, svc.decision_function(grid).reshape(size, size), [0.0], colors="white", linewidths=1.5)
ticks = [10, 20, 50, 100, 200]
bar = fig.colorbar(image, ax=ax, label="kernel values that a label needs", ticks=ticks)
bar.ax.set_yticklabels([str(tick) for tick in ticks])
bar.ax.minorticks_off()
ax.set(title=f"white: the boundary; the whole sum has {len(vectors)} values", xlabel="feature 1", ylabel="feature 2")
plt.show()
