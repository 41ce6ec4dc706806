"""
A decision tree of linear SVMs
==============================

``SVMTreeClassifier`` is for those who train anyway: hyperplanes peel off the easy rows, one class at a time, and an RBF
machine, the tail, answers what is left. The picture shows how many planes a row meets and who decides in the end.
"""

# %%
# The tail's parameters are given here; ``tail="rbf"``, the default, chooses them by cross-validation.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import svelto

X, y = make_moons(6000, noise=0.15, random_state=0)
tree = svelto.SVMTreeClassifier(tail=SVC(C=10, gamma=2), random_state=0).fit(X[:1800], y[:1800])
linear = svelto.SVMTreeClassifier(tail=None, random_state=0).fit(X[:1800], y[:1800])
svc = SVC(C=10, gamma=2).fit(X[:1800], y[:1800])
new, labels = X[1800:], y[1800:]
for name, model in (("tree with an RBF tail", tree), ("tree of planes alone", linear), ("SVC", svc)):
    print(f"{name}: accuracy {model.score(new, labels):.3%}")
print(tree.describe())

# %%
# ``decision_path`` says which nodes a row meets; its last column is the tail.
size = 160
side = np.linspace(-1.8, 2.8, size), np.linspace(-1.4, 1.9, size)
grid = np.stack(np.meshgrid(*side), axis=-1).reshape(-1, 2)
path = tree.decision_path(grid).toarray()
planes = path[:, : tree.n_nodes_].sum(axis=1).reshape(size, size)
tail = path[:, tree.n_nodes_].reshape(size, size)

fig, axes = plt.subplots(1, 2, figsize=(10.5, 4.3), sharey=True, layout="constrained")
image = axes[0].pcolormesh(*side, planes, cmap="cividis", rasterized=True)
axes[0].contourf(*side, tail, [0.5, 1.5], colors="none", hatches=["///"])
fig.colorbar(image, ax=axes[0], label="nodes that a row meets", ticks=np.unique(planes))
axes[0].set(title="hatched: left to the RBF tail", xlabel="feature 1", ylabel="feature 2")
for label, colour in ((0, "#0072B2"), (1, "#E69F00")):
    axes[1].plot(*new[:800][labels[:800] == label].T, ".", ms=3, color=colour, label=f"class {label}")
for model, colour, style, name in ((tree, "black", "-", "with a tail"), (linear, "#D55E00", "--", "planes alone")):
    axes[1].contour(*side, model.predict(grid).reshape(size, size), [0.5], colors=colour, linestyles=style)
    axes[1].plot([], [], color=colour, ls=style, label=name)
axes[1].legend(loc="lower left", fontsize=8)
axes[1].set(title="boundaries", xlabel="feature 1")
plt.show()
print(f"work: {tree.work(new)}")
