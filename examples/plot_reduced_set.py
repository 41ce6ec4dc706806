"""
A reduced set: few vectors that stand in for many
=================================================

``method="reduced_set"`` looks for a machine of a few dozen vectors whose scores are close to those of the whole. The
vectors may be anywhere; with the rbf kernel they are moved until the scores fit.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto
from svelto.engines.reduced_set import reduce_machine

X, y = make_moons(16_000, noise=0.35, random_state=0)
svc = SVC(C=10, gamma=5).fit(X[:4000], y[:4000])
machine = svelto.KernelMachine.from_sklearn(svc)
exact = svelto.accelerate(machine, method="exact")
new = X[8000:]
print(f"{machine.n_sv} support vectors")

# %%
# Sizes side by side. ``reduce_machine`` makes the small machine alone; its scores are
# LIBSVM's, positive for the first class.
side = np.linspace(-2.2, 3.2, 220), np.linspace(-1.8, 2.3, 180)
grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
fig, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, n_basis in zip(axes, (8, 32, 96), strict=True):
    small = reduce_machine(machine, X[:6000], n_basis=n_basis, random_state=0)
    scores = svelto.accelerate(small, method="exact")
    equal = np.mean((scores.predict(new) > 0) == (exact.predict(new) == exact.classes_[0]))
    ax.plot(*svc.support_vectors_.T, ".", ms=2, color="#BBBBBB", label="support vectors")
    ax.plot(*small.support_vectors.T, "o", ms=5, mfc="none", mec="#0072B2", label="reduced set")
    ax.contour(*side, exact.decision_function(grid).reshape(180, 220), [0.0], colors="black", linewidths=3, alpha=0.4)
    ax.contour(*side, scores.predict(grid).reshape(180, 220), [0.0], colors="#D55E00", linewidths=1.5)
    ax.set(title=f"{n_basis} vectors: {equal:.2%} equal labels", xlabel="feature 1", xlim=(-2.2, 3.2), ylim=(-1.8, 2.3))
axes[0].plot([], [], color="black", lw=3, alpha=0.4, label="SVM's boundary")
axes[0].plot([], [], color="#D55E00", label="reduced set's")
axes[0].set_ylabel("feature 2")
axes[0].legend(loc="lower left", fontsize=7)
plt.show()

# %%
# As a stage of a cascade it also knows how wrong it may be in which part of the plane.
fast = svelto.accelerate(svc, X[:6000], method="reduced_set", agreement=0.999, random_state=0)
print(f"promise: {fast.report.promise}; {fast.report.details.get('basis vectors')} vectors")
print(f"{np.mean(fast.predict(new) == exact.predict(new)):.3%} equal labels")
print({stage: round(share, 4) for stage, share in fast.work(new)["stages"].items()})
