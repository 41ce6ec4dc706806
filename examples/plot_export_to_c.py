"""
From a support vector machine to a C header
===========================================

A microcontroller has some ten kilobytes of flash for a model, and no Python. ``export_c`` writes a predictor as one C
header: tables and loops, nothing else. How many bytes does it take, and how many labels stay the same?

We train a machine, export it whole and as single stages of different sizes, with numbers of 32, 16 and 8 bits, and draw
bytes against agreement. Where a C compiler is installed, one header is compiled and asked.
"""


# %%
# A machine, and rows it has not seen
# -----------------------------------

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.svm import SVC

import svelto

X, y = make_classification(
    6000, 12, n_informative=8, n_redundant=2, n_clusters_per_class=4, class_sep=1.2, random_state=0
)
X = X.astype(np.float32).astype(np.float64)  # the numbers that C code reads
svc = SVC(C=3.0).fit(X[:3000], y[:3000])
new = X[3000:]
print(f"{len(svc.support_):,} support vectors of {X.shape[1]} features")

# %%
# Exports
# -------
#
# The whole sum over the support vectors, and stages alone: hinges learn the machine's scores, a reduced set has few
# vectors instead of many. ``agreement=None`` asks for a stage that answers every row; it promises nothing, so the
# agreement is measured, on rows that nothing has seen.

folder = Path(tempfile.mkdtemp())
predictors = {"exact": [svelto.accelerate(svc, method="exact")]}
predictors["hinges"] = [
    svelto.accelerate(svc, X[:3000], method="hinges", n_hinges=n, agreement=None, random_state=0) for n in (16, 32, 64)
]
predictors["reduced set"] = [
    svelto.accelerate(svc, X[:3000], method="reduced_set", n_basis=n, max_iter=30, agreement=None, random_state=0)
    for n in (32, 64, 128)
]

points = {}
for method, of_method in predictors.items():
    for predictor in of_method:
        for dtype in ("float32", "int16", "int8"):
            written = predictor.export_c(folder / "model.h", dtype=dtype, X=new)
            points.setdefault((method, dtype), []).append((written.table_bytes, written.agreement.machine))
            print(f"{method:12} {dtype:8} {written.table_bytes:8,} bytes  {written.agreement.machine:.4f} agree")

# %%
# Bytes against agreement
# -----------------------
#
# Rounding to 16 bits changes hardly a label. 8 bits cost hinges next to nothing. They cost sums over vectors more: the
# large coefficients of a reduced set cancel, and with many vectors what is lost adds up. So look at what was measured.

colours = {"exact": "tab:gray", "hinges": "tab:blue", "reduced set": "tab:orange"}
marks = {"float32": "o", "int16": "s", "int8": "^"}
figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for (method, dtype), found in points.items():
    size, agreement = np.array(found).T
    # One row is the least that can differ: an agreement of 1 is drawn there.
    lost = np.maximum(1.0 - agreement, 1.0 / len(new))
    axes.plot(size, lost, marks[dtype] + "-", color=colours[method], label=f"{method}, {dtype}", linewidth=1, alpha=0.8)
axes.set(xscale="log", yscale="log", xlabel="bytes of tables", ylabel="share of labels that differ")
axes.set_title("One header, by method and type of numbers")
axes.legend(fontsize="small", ncols=3)
plt.show()

# %%
# Ask the header
# --------------

predictor = predictors["hinges"][-1]
written = predictor.export_c(folder / "model.h", dtype="int8", X=new)
print(written.path.read_text().split("*/")[0] + "*/")

compiler = shutil.which("cc") or shutil.which("gcc")
if compiler is None:
    print("There is no C compiler here, so the header is not compiled.")
else:
    (folder / "ask.c").write_text('#include "model.h"\nint ask(const float *x) { return model_predict(x); }\n')
    command = [compiler, "-std=c99", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "ask.c", "-o", "ask.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    ask = ctypes.CDLL(str(folder / "ask.so")).ask
    rows = new.astype(np.float32)
    labels = np.array([ask(row.ctypes.data_as(ctypes.c_void_p)) for row in rows])
    print(f"compiled: {np.mean(labels == svc.predict(new)):.4f} of the labels are the machine's")
