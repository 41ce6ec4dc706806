"""
A search in which every candidate predicts fast
===============================================

``Accelerated`` is an estimator around an estimator: after every ``fit`` it answers through svelto. In a search over C
and gamma the scores are those of the plain pipeline, to the last bit, and predicting hardly counts any more. Training
takes as long as ever.
"""

# %%
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import svelto

X, y = make_classification(4000, n_features=20, n_informative=8, class_sep=0.7, flip_y=0.1, random_state=0)
grid = {"svc__C": [0.1, 1.0, 10.0], "svc__gamma": [0.01, 0.03, 0.1, 0.3]}
plain = make_pipeline(StandardScaler(), SVC())
# "exact" gives the estimator's own answers and is built in milliseconds: the method to search with.
fast = svelto.Accelerated(plain, method="exact")

searches = {}
for name, model, prefix in (("SVC", plain, ""), ("Accelerated", fast, "estimator__")):
    parameters = {prefix + key: values for key, values in grid.items()}
    started = perf_counter()
    searches[name] = GridSearchCV(model, parameters, cv=3)
    searches[name].fit(X[:1800], y[:1800])
    print(f"{name}: {perf_counter() - started:.1f} s, best {searches[name].best_params_}")
results = {name: search.cv_results_ for name, search in searches.items()}
print("same scores:", np.array_equal(*(found["mean_test_score"] for found in results.values())))

# %%
fig, axes = plt.subplots(1, 2, figsize=(10.5, 3.9), layout="constrained", width_ratios=[1.2, 1])
scores = 100 * results["Accelerated"]["mean_test_score"].reshape(3, 4)
image = axes[0].imshow(scores, cmap="cividis", aspect="auto")
middle = (scores.min() + scores.max()) / 2
for (i, j), value in np.ndenumerate(scores):
    axes[0].text(j, i, f"{value:.1f}", ha="center", va="center", color="white" if value < middle else "black")
axes[0].set_xticks(range(4), labels=[str(g) for g in grid["svc__gamma"]])
axes[0].set_yticks(range(3), labels=[str(c) for c in grid["svc__C"]])
axes[0].set(xlabel="gamma", ylabel="C", title="accuracy in cross-validation, %")
fig.colorbar(image, ax=axes[0])

parts = {"training": "mean_fit_time", "scoring held-out rows": "mean_score_time"}
below = np.zeros(2)
for (part, key), colour in zip(parts.items(), ("#999999", "#D55E00"), strict=True):
    times = np.array([3 * results[name][key].sum() for name in searches])
    axes[1].barh(list(searches), times, left=below, color=colour, label=part)
    below += times
axes[1].set(xlabel="seconds of the search", title="where the time goes")
axes[1].invert_yaxis()
fig.legend(loc="outside lower right", ncols=2, frameon=False)
plt.show()

# %%
# What was found can be asked as any estimator; the report says what it promises.
best = searches["Accelerated"].best_estimator_
print(f"accuracy on new rows: {best.score(X[1800:], y[1800:]):.1%}; promise: {best.report_.promise}")
