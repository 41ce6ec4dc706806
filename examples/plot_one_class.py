"""
Scores of a one-class machine
=============================

A ``OneClassSVM`` learns what is usual and scores what is not. Scores are numbers, not labels, so what counts is how
far they are from the machine's; ``decision_function`` and ``score_samples`` work as in scikit-learn.
"""

# %%
# Machine readings: three states of normal work, and some faults.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.svm import OneClassSVM

import svelto

rng = np.random.default_rng(0)
normal, _ = make_blobs(34_000, centers=[[0, 0], [4, 1], [1.5, 4]], cluster_std=[0.8, 0.5, 0.6], random_state=0)
faults = rng.uniform(-4, 8, size=(200, 2))
detector = OneClassSVM(nu=0.2, gamma=1.0).fit(normal[:12_000])

exact = svelto.accelerate(detector, method="exact")
fast = svelto.accelerate(detector, normal[12_000:30_000], method="taylor_tree", agreement=0.999, random_state=0)
print(f"{len(detector.support_)} support vectors")

# %%
# Labels of the exact engine are the machine's, always; its scores come with a bound. The tree's labels carry a
# statistical promise; its scores do not.
rows = np.vstack([normal[30_000:], faults])
wanted = detector.decision_function(rows)
labels = np.where(wanted > 0, 1, -1)
for name, predictor in (("exact", exact), ("taylor_tree", fast)):
    errors = np.abs(predictor.decision_function(rows) - wanted)
    equal = np.mean(predictor.predict(rows) == labels)
    print(f"{name}: {equal:.3%} equal labels")
    print(f"    error of a score: median {np.median(errors):.1e}, largest {errors.max():.1e}")
print(f"largest score_bounds of the exact engine: {exact.score_bounds(rows).max():.1e}")

# %%
side = np.linspace(-4, 8, 250)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
scores = exact.decision_function(grid).reshape(250, 250)
fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
image = axes[0].pcolormesh(side, side, scores, cmap="cividis", vmin=-80, rasterized=True)
axes[0].contour(side, side, scores, [0.0], colors="white", linewidths=2)
axes[0].plot(*normal[30_000:30_600].T, ".", ms=2, color="white", alpha=0.7, label="normal")
axes[0].plot(*faults.T, "x", ms=5, color="#D55E00", label="faults")
axes[0].legend(loc="upper right", fontsize=8, facecolor="#555555", labelcolor="white")
axes[0].set(title="score of the plane; white line: 0", xlabel="reading 1", ylabel="reading 2")
fig.colorbar(image, ax=axes[0], extend="min")

edges = np.linspace(wanted.min(), wanted.max(), 60)
for part, colour, label in ((slice(0, -200), "#0072B2", "normal"), (slice(-200, None), "#D55E00", "faults")):
    axes[1].hist(fast.decision_function(rows)[part], edges, density=True, color=colour, alpha=0.7, label=label)
axes[1].axvline(0.0, color="black", lw=1)
axes[1].legend()
axes[1].set(title="scores of new rows, taylor_tree", xlabel="score (below 0: an outlier)", ylabel="density")
plt.show()
