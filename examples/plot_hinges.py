"""
Hinges: a score made of bent planes
===================================

``method="hinges"`` replaces the sum over all support vectors by a few dozen bent planes, fitted to the machine's own
scores. The pictures show where the planes are bent, and the boundary that they make.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto

X, y = make_moons(16_000, noise=0.3, random_state=0)
svc = SVC(C=10, gamma=2).fit(X[:4000], y[:4000])
exact = svelto.accelerate(svc, method="exact")
new = X[8000:]
print(f"{len(svc.support_)} support vectors")

# %%
# Without a promise the hinges answer everything. Precision goes where signs are decided: scores far from zero are all
# alike to the fit, so that no hinge is spent on bending what cannot change a label. Far from the data a plane goes on
# and on, where the machine falls back to its bias; with a promise a guard keeps such rows from the hinges.
side = np.linspace(-2.2, 3.2, 360), np.linspace(-1.8, 2.3, 280)
grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
shape = len(side[1]), len(side[0])
wanted = exact.decision_function(grid).reshape(shape)


def bends(scores):
    """Pixels at which a piecewise linear function bends."""
    second = sum(np.abs(np.diff(scores, 2, axis=axis, prepend=np.nan, append=np.nan)) for axis in (0, 1))
    return np.nan_to_num(second) > 1e-3


fig, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, n_hinges in zip(axes, (4, 16, 64), strict=True):
    fast = svelto.accelerate(svc, X[:8000], method="hinges", n_hinges=n_hinges, agreement=None, random_state=0)
    scores = fast.decision_function(grid).reshape(shape)
    equal = np.mean(fast.predict(new) == exact.predict(new))
    ax.pcolormesh(*side, np.where(bends(scores), 0.7, np.nan), cmap="gray", vmin=0, vmax=1, rasterized=True)
    ax.plot(*new[:500].T, ".", ms=2, color="#56B4E9")
    ax.contour(*side, wanted, [0.0], colors="black", linewidths=3, alpha=0.4)
    ax.contour(*side, scores, [0.0], colors="#D55E00", linewidths=1.5)
    ax.set(title=f"{n_hinges} hinges: {equal:.2%} equal labels", xlabel="feature 1")
axes[0].plot([], [], color="black", lw=3, alpha=0.4, label="SVM's boundary")
axes[0].plot([], [], color="#D55E00", label="hinges' boundary")
axes[0].plot([], [], color="0.7", label="bends")
axes[0].set_ylabel("feature 2")
axes[0].legend(loc="lower left", fontsize=8)
plt.show()

# %%
# With a promise, rows whose score is small against its error go on to the exact engine; ``n_hinges="auto"`` looks for
# the number whose rows cost least, those sent on included.
fast = svelto.accelerate(svc, X[:8000], method="hinges", agreement=0.999, random_state=0)
print(f"promise: {fast.report.promise}, at least {fast.report.agreement_bound:.4f} shown")
print(f"{np.mean(fast.predict(new) == exact.predict(new)):.3%} equal labels")
print({stage: round(share, 4) for stage, share in fast.work(new)["stages"].items()})
