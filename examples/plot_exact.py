"""
How float32 arithmetic gives float64 labels
===========================================

``method="exact"`` computes a score in float32 together with a bound on its error. Where the score is larger than the
bound the label is certain; the few rows left are done again in float64, and if need be in LIBSVM's own order.
"""

# %%
# New rows, and rows that were walked towards the boundary by bisection, where scores are small.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import SVC

import svelto

X, y = make_classification(8000, n_features=20, n_informative=8, flip_y=0.05, random_state=0)
svc = SVC(C=2).fit(X[:4000], y[:4000])
exact = svelto.accelerate(svc, method="exact")
precise = svelto.accelerate(svc, method="exact", precision="float64")
new = X[4000:]


def walk_to_boundary(n_steps):
    """Rows between two others of different labels, closer and closer to where the label changes."""
    labels = exact.predict(new)
    left, right = new[labels == 0][:300], new[labels == 1][:300]
    n = min(len(left), len(right))
    left, right = left[:n].copy(), right[:n].copy()
    for _ in range(n_steps):
        middle = (left + right) / 2
        zero = exact.predict(middle) == 0
        left[zero], right[~zero] = middle[zero], middle[~zero]
    return left


near = np.vstack([walk_to_boundary(steps) for steps in (4, 8, 12, 16, 20, 24)])

# %%
fig, ax = plt.subplots(figsize=(8, 4.4), layout="constrained")
for rows, colour, name in ((new, "#0072B2", "new rows"), (near, "#D55E00", "walked towards the boundary")):
    scores, bounds = np.abs(exact.decision_function(rows)), exact.score_bounds(rows)[:, 0]
    errors = np.abs(exact.decision_function(rows) - precise.decision_function(rows))
    ax.plot(scores, bounds, ".", ms=3, color=colour, label=f"bound, {name}")
    ax.plot(scores, errors, ".", ms=2, color=colour, alpha=0.25, label=f"actual error, {name}")
line = np.geomspace(1e-8, 10, 50)
ax.fill_between(line, line, 1e2, color="gray", alpha=0.15)
ax.text(2e-8, 1e-2, "the bound leaves the label open:\ndone again in float64")
ax.text(3e-2, 3e-8, "label certain")
ax.set(xscale="log", yscale="log", xlim=(1e-8, 10), ylim=(1e-9, 1e-1))
ax.set(xlabel="|score|, computed in float32", ylabel="error of the score")
ax.legend(loc="lower left", fontsize=8, markerscale=3)
plt.show()

# %%
# Which tier settled the rows, and that labels are LIBSVM's everywhere. (A label within the rounding of doubles of a tie
# depends on the order of summation; LIBSVM's order defines it, and scikit-learn follows it for sparse rows.)
from scipy.sparse import csr_matrix  # noqa: E402

sparse_svc = SVC(C=2).fit(csr_matrix(X[:4000]), y[:4000])
fast = svelto.accelerate(sparse_svc, method="exact")
for name, rows in (("new rows", new), ("near the boundary", near)):
    differ = (fast.predict(rows) != sparse_svc.predict(csr_matrix(rows))).sum()
    tiers = {tier: f"{share:.2%}" for tier, share in fast.work(rows)["stages"].items()}
    print(f"{name}: {differ} of {len(rows)} labels differ; settled by {tiers}")
