"""
A satellite-like tile, pixel by pixel
=====================================

A land-cover map asks an SVM about every pixel of a tile. The tile here is made up: four bands, five kinds of ground,
noise, and a few clouds that no training pixel has shown. The fast predictor's map is put beside the exact one.
"""

# %%
# Fields of ground are the largest of smooth random surfaces; each kind of ground has its mean in every band.
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from scipy.ndimage import gaussian_filter
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import svelto

SIZE = 300
GROUND = ("water", "forest", "field", "bare", "town")
COLOURS = ("#0072B2", "#009E73", "#F0E442", "#E69F00", "#999999")
# Mean reflectance of the kinds of ground in blue, green, red and near infrared.
BANDS = np.array([[8, 6, 4, 2], [4, 7, 5, 30], [6, 10, 9, 40], [12, 16, 22, 28], [16, 17, 18, 22]]) / 100

rng = np.random.default_rng(0)
surfaces = np.stack([gaussian_filter(rng.normal(size=(SIZE, SIZE)), 18) for _ in GROUND])
truth = surfaces.argmax(axis=0)
tile = BANDS[truth] * rng.normal(1.0, 0.12, size=(SIZE, SIZE, 1)) + rng.normal(0.0, 0.02, size=(SIZE, SIZE, 4))
clouds = gaussian_filter(rng.normal(size=(SIZE, SIZE)), 12)
tile[clouds > np.quantile(clouds, 0.985)] += 0.5

# %%
# An SVM with a scaler in front, trained on clear pixels; svelto learns from other pixels, without their labels.
clear = np.flatnonzero((clouds <= np.quantile(clouds, 0.97)).ravel())
pixels = tile.reshape(-1, 4)
train = rng.choice(clear, size=4000, replace=False)
model = make_pipeline(StandardScaler(), SVC(C=10)).fit(pixels[train], truth.ravel()[train])
calibration = rng.choice(np.setdiff1d(clear, train), size=15_000, replace=False)
fast = svelto.accelerate(model, pixels[calibration], method="hinges", agreement=0.999, random_state=0)
exact = svelto.accelerate(model, method="exact")

maps = {}
for name, predictor in (("exact", exact), ("hinges", fast)):
    started = perf_counter()
    maps[name] = predictor.predict(pixels).reshape(SIZE, SIZE)
    print(f"{name}: {SIZE * SIZE} pixels in {perf_counter() - started:.3f} s")
same = maps["exact"] == maps["hinges"]
print(f"{model[-1].n_support_.sum()} support vectors; {same.mean():.3%} of the pixels have the same label")
print(f"sent to the exact engine because no calibration pixel is like them: {fast.work(pixels)['guarded']:.1%}")

# %%
# Differences are single pixels between two kinds of ground, where the machine itself is in doubt. None is a cloud: the
# guard sends these on.
fig, axes = plt.subplots(2, 2, figsize=(8.6, 8.2), layout="constrained", sharex=True, sharey=True)
colours = ListedColormap(COLOURS)
axes[0, 0].imshow(np.clip(tile[..., [3, 2, 1]] / [0.5, 0.35, 0.3], 0, 1))
axes[0, 0].set_title("the tile, near infrared as red; clouds are white")
for ax, name in ((axes[0, 1], "exact"), (axes[1, 0], "hinges")):
    ax.imshow(maps[name], cmap=colours, vmin=0, vmax=4, interpolation="nearest")
    ax.set_title(f"labels, {name}")
axes[1, 1].imshow(np.where(clouds > np.quantile(clouds, 0.985), 0.85, 1.0), cmap="gray", vmin=0, vmax=1)
rows, columns = np.nonzero(~same)
axes[1, 1].plot(columns, rows, "s", ms=4, color="#D55E00")
axes[1, 1].set_title(f"{(~same).sum()} of {SIZE * SIZE} labels differ (clouds: grey)")
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])
handles = [plt.Line2D([], [], marker="s", ls="", color=c, label=g) for c, g in zip(COLOURS, GROUND, strict=True)]
fig.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
plt.show()
