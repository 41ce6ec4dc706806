"""
The boundary of an SVM and of its Taylor tree
=============================================

``method="taylor_tree"`` cuts the plane into cells and puts a linear model into each. The picture shows the machine's
boundary, the tree's, and the cells; then the same with a promise, where rows near the boundary go to the exact machine.
"""

# %%
# A machine to be made fast: classes that overlap, hence thousands of support vectors in the plane.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto

BLUE, ORANGE, BLACK = "#0072B2", "#E69F00", "#000000"

X, y = make_moons(16_000, noise=0.4, random_state=0)
svc = SVC(C=1, gamma=2).fit(X[:6000], y[:6000])
exact = svelto.accelerate(svc, method="exact")  # the same labels as svc, sooner
print(f"{len(svc.support_)} support vectors")

# %%
# Without a promise (``agreement=None``) the tree answers everything, so that its scores can be seen. They are linear in
# every cell: where the slope jumps from one pixel to the next, there is an edge.
raw = svelto.accelerate(svc, X[:6000], method="taylor_tree", agreement=None, random_state=0)

side = np.linspace(-2.4, 3.4, 400), np.linspace(-2.0, 2.6, 300)
grid = np.stack(np.meshgrid(*side), axis=-1)
exact_scores = exact.decision_function(grid.reshape(-1, 2)).reshape(300, 400)
tree_scores = raw.decision_function(grid.reshape(-1, 2)).reshape(300, 400)


def cell_edges(scores):
    """Pixels at which a piecewise linear function bends or jumps."""
    bends = sum(np.abs(np.diff(scores, 2, axis=axis, prepend=np.nan, append=np.nan)) for axis in (0, 1))
    return np.nan_to_num(bends) > 2e-3


fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
axes[0].imshow(
    np.where(cell_edges(tree_scores), 0.75, np.nan),
    cmap="gray",
    vmin=0,
    vmax=1,
    origin="lower",
    extent=(-2.4, 3.4, -2.0, 2.6),
    aspect="auto",
)
for label, colour in ((0, BLUE), (1, ORANGE)):
    rows = X[:600][y[:600] == label]
    axes[0].plot(*rows.T, ".", ms=3, color=colour, label=f"class {label}")
axes[0].contour(*side, exact_scores, [0.0], colors=BLACK, linewidths=2.5)
axes[0].contour(*side, tree_scores, [0.0], colors="#D55E00", linewidths=1.5, linestyles="--")
axes[0].plot([], [], color=BLACK, lw=2.5, label="SVM")
axes[0].plot([], [], color="#D55E00", lw=1.5, ls="--", label="Taylor tree")
axes[0].legend(loc="lower left", fontsize=8)
axes[0].set(title="cells of the tree, and both boundaries", xlabel="feature 1", ylabel="feature 2")

image = axes[1].pcolormesh(*side, np.abs(tree_scores - exact_scores), cmap="cividis", vmax=0.5, rasterized=True)
axes[1].contour(*side, exact_scores, [0.0], colors="white", linewidths=1.5)
axes[1].set(title="|tree's score - machine's score|", xlabel="feature 1")
fig.colorbar(image, ax=axes[1], extend="max")
plt.show()

# %%
# The tree is wrong far from the data, where it has seen no row. With a promise this does not matter: such rows are
# recognised and, like rows too close to the boundary, answered by the exact engine.
fast = svelto.accelerate(svc, X[:6000], method="taylor_tree", agreement=0.999, random_state=0)
new = X[6000:]
print(f"without a promise: {np.mean(raw.predict(new) == exact.predict(new)):.2%} of the labels are the machine's")
print(f"agreement=0.999:   {np.mean(fast.predict(new) == exact.predict(new)):.2%}")
for stage, share in fast.work(new)["stages"].items():
    print(f"    settled by {stage}: {share:.1%}")
