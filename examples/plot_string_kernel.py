"""
A string kernel: how many kernel values does a label need?
==========================================================

Where the rows are strings, a kernel value is a function call, and a label costs one for every support vector.
``method="sv_tree"`` walks a tree instead: each node asks for one more kernel value. The strings here are made up after
the manner of DNA: half of them have the letters CAGGTA, more or less, in the middle.
"""

# %%
# The kernels are plain Python functions in ``examples/string_kernels.py``. Objects never become vectors.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC
from string_kernels import spectrum

import svelto

LENGTH, MOTIF = 30, "CAGGTA"


def make_strings(n, rng):
    """Strings and labels: 1 where the motif is there, each of its letters with probability 0.8."""
    letters = rng.choice(list("ACGT"), size=(n, LENGTH))
    labels = rng.integers(2, size=n)
    kept = (rng.random((n, len(MOTIF))) < 0.8) & (labels == 1)[:, None]
    middle = slice(LENGTH // 2 - 3, LENGTH // 2 + 3)
    letters[:, middle] = np.where(kept, list(MOTIF), letters[:, middle])
    return ["".join(row) for row in letters], labels


rng = np.random.default_rng(0)
strings, y = make_strings(200, rng)
gram = spectrum(strings, strings)
svc = SVC(kernel="precomputed", C=0.05).fit(gram, y)  # scikit-learn takes no strings, so it gets the matrix
machine = svelto.KernelMachine.from_arrays(
    kernel=spectrum,
    support_vectors=[strings[i] for i in svc.support_],
    dual_coef=svc.dual_coef_,
    intercept=svc.intercept_,
    classes=svc.classes_,
)
exact = svelto.accelerate(machine, method="exact")
print(f"a string: {strings[0]}; {machine.n_sv} support vectors")

# %%
# Trees with more and more values on a path, without a promise; then one with a promise, where strings that the tree is
# not sure about are answered by the whole machine. Both learn from unlabelled strings that the machine has not seen.
build, _ = make_strings(600, rng)
new, new_labels = make_strings(250, rng)
right = exact.predict(new)
budgets = (2, 8, 32)
trees = [
    svelto.accelerate(machine, build, method="sv_tree", agreement=None, max_evals=n, random_state=0) for n in budgets
]
careful = svelto.accelerate(machine, build, method="sv_tree", agreement=0.9, max_evals=32, random_state=0)


def values_a_string(predictor):
    """Kernel values that a new string costs, on average."""
    return predictor.work(new)["kernel_evaluations_per_row"]


def equal(predictor):
    """Share of new strings that get the machine's label."""
    return np.mean(predictor.predict(new) == right)


for name, answers in (("machine", right), ("tree with a promise", careful.predict(new))):
    print(f"accuracy of the {name}: {np.mean(answers == new_labels):.1%}")

# %%
fig, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
ax.plot([values_a_string(t) for t in trees], [equal(t) for t in trees], "o-", color="#0072B2", label="tree, no promise")
ax.plot(values_a_string(careful), equal(careful), "D", ms=9, color="#009E73", label="tree, agreement=0.9")
ax.plot(machine.n_sv, 1.0, "s", ms=9, color="#D55E00", label="all support vectors")
for tree, budget in zip(trees, budgets, strict=True):
    ax.annotate(
        f"max_evals={budget}",
        (values_a_string(tree), equal(tree)),
        xytext=(6, -10),
        textcoords="offset points",
        fontsize=8,
    )
ax.set_xscale("log", base=2)
ax.set_xticks([2, 4, 8, 16, 32, 64, 128, 256], labels=["2", "4", "8", "16", "32", "64", "128", "256"])
ax.set(
    xlabel="kernel values a string",
    ylabel="share of the machine's labels",
    title="labels for a part of the kernel values",
)
ax.grid(alpha=0.3)
ax.legend(loc="lower right")
plt.show()
