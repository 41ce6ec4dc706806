"""
Which method? Let it be tried
=============================

``method="auto"``, the default, builds what serves the machine, times it on these rows and on this computer, and returns
the fastest that keeps the promise. The report remembers everything that was tried.
"""

# %%
import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.svm import SVC

import svelto

X, y = make_classification(11_000, n_features=6, n_informative=4, flip_y=0.1, random_state=0)
svc = SVC(C=1, gamma=0.05).fit(X[:3000], y[:3000])
fast = svelto.accelerate(svc, X[3000:], agreement=0.998, n_jobs=1, random_state=0)
print(fast.report)

# %%
# What was built, cheapest row first. With many rows, candidates are built on a sample and the best again on all rows.
# A notebook shows ``fast.report`` as a page, ``fast.report.to_html("report.html")`` writes it to a file.
COLOURS = {"exact": "#D55E00", "hinges": "#0072B2", "taylor_tree": "#009E73", "reduced_set": "#CC79A7"}
trials = sorted(fast.report.tried, key=lambda trial: trial.microseconds)
fig, ax = plt.subplots(figsize=(9, 0.55 * len(trials) + 1.2), layout="constrained")
for place, trial in enumerate(trials):
    ax.barh(place, trial.microseconds, color=COLOURS.get(trial.method, "#E69F00"), height=0.7)
    note = f"{trial.microseconds:.2f} us, {trial.nbytes // 1000} kB" + ("  <- chosen" if trial.chosen else "")
    ax.text(trial.microseconds, place, "  " + note, va="center", fontweight="bold" if trial.chosen else "normal")
names = [f"{trial.method}\n{trial.n_rows} rows" if trial.n_rows else trial.method for trial in trials]
ax.set_yticks(range(len(trials)), labels=names)
ax.set_xlim(0, 1.5 * trials[-1].microseconds)
ax.invert_yaxis()
ax.set(xlabel="microseconds a row", title="everything that was tried")
plt.show()
