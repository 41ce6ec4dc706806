"""
What a promise costs
====================

The more labels must agree with the machine's, the more rows a method has to send on, and the more time a row takes. One
sharp machine, one method, promises from 97 % to 99.9 %, and the time of a row, measured here and now.
"""

# %%
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import SVC

import svelto

X, y = make_classification(34_000, n_features=8, n_informative=5, flip_y=0.1, random_state=0)
svc = SVC(C=1, gamma=0.2).fit(X[:4000], y[:4000])
given, new = X[4000:24_000], X[24_000:]
exact = svelto.accelerate(svc, method="exact", n_jobs=1)
right = exact.predict(new)
print(f"{len(svc.support_)} support vectors")


def microseconds(predictors, rounds=15):
    """Time of a row on one core, the best of some rounds; a slow moment of the computer hits all of them."""
    times = np.empty((rounds, len(predictors)))
    for one in times:
        for number, predictor in enumerate(predictors):
            started = perf_counter()
            predictor.predict(new)
            one[number] = perf_counter() - started
    return 1e6 * times.min(axis=0) / len(new)


# %%
# A promise is checked on rows that took part in no choice; the last column is what these rows could show. It is a lower
# bound with a confidence of 95 %, so that more labels agree than promised, as a rule.
asked = (0.97, 0.98, 0.99, 0.995, 0.998, 0.999)
options = {"method": "taylor_tree", "next_stage": None, "oracle_rows": 20_000, "n_jobs": 1, "random_state": 0}
predictors = [svelto.accelerate(svc, given, agreement=agreement, **options) for agreement in asked]
wrong = [np.mean(fast.predict(new) != right) for fast in predictors]
sent_on = [fast.work(new)["stages"]["exact"] for fast in predictors]
*times, exact_time = microseconds([*predictors, exact])
print("asked   labels that differ   sent on   us a row   at least shown")
for agreement, fast, *found in zip(asked, predictors, wrong, sent_on, times, strict=True):
    shown = fast.report.agreement_bound
    print("{:5.3f}   {:18.3%}   {:7.1%}   {:8.2f}   {:.4f}".format(agreement, *found, shown))

# %%
fig, axes = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
allowed = 1.0 - np.array(asked)
axes[0].fill_between(allowed, allowed, 1, color="#D55E00", alpha=0.15, label="more than promised")
axes[0].plot(allowed, np.maximum(wrong, 5e-5), "o-", color="#0072B2", label="measured on 10,000 new rows")
axes[0].axhline(5e-5, color="gray", lw=0.8, ls=":", label="none differs")
axes[0].set(yscale="log", ylim=(2e-5, 0.1), ylabel="share of labels that differ", title="what is kept")
axes[1].plot(allowed, times, "o-", color="#0072B2", label="taylor_tree")
axes[1].axhline(exact_time, color="black", lw=1.5, label="exact engine")
for x, time, share in zip(allowed, times, sent_on, strict=True):
    axes[1].annotate(f"{share:.0%}", (x, time), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=8)
axes[1].margins(y=0.2)
axes[1].set(ylim=(0, None), ylabel="microseconds a row", title="what it costs; with the share of rows sent on")
for ax in axes:
    ax.set(xscale="log", xlabel="agreement")
    ax.set_xticks(allowed, labels=[str(a) for a in asked], rotation=30)
    ax.minorticks_off()
    ax.invert_xaxis()
axes[0].legend(loc="lower left")
axes[1].legend(loc="upper left", bbox_to_anchor=(0.0, 0.7))
plt.show()
