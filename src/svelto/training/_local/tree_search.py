"""Exact neighbours by svelto's own tree of boxes.

The tree is built on float32 images of the rows: centred, scaled by a power of two, and such that a row that is far away
shows it in its first few numbers. Up to `MOST_FEATURES` features these are the features themselves, those of largest
variance first. (Principal axes were slower on CoverType, whose binary features part the rows best as they are.) Of more
features, the images hold what lies along the leading principal axes, and the length of the rest: by the triangle
inequality images are never further apart than rows. Images only say which rows cannot be among the nearest; distances
are those of `feature_space`, and ties go to the row that comes first.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from svelto import _core
from svelto._typing import FloatArray, IntArray
from svelto.engines.arrays import aligned_zeros
from svelto.engines.exact import instruction_level
from svelto.training._local.feature_space import whole_lanes

# Rows of a leaf, at most; measured with 16 to 64 on CoverType.
LEAF_ROWS: Final = 64
# Numbers of an image.
MOST_FEATURES: Final = 64
# Rows that the variances are estimated from, and rows that are brought into images at a time.
SAMPLE_ROWS: Final = 5_000
# Principal axes of more features are found by random projections: any orthonormal ones serve, good ones serve better.
MOST_EXACT_AXES: Final = 1_000
IMAGE_ROWS: Final = 16_384
# One native call answers at most this many queries, so that Ctrl-C is heard.
QUERIES_PER_CALL: Final = 8_192


class TreeSearch:
    """The tree over dense float64 rows in C order, which it goes on to read."""

    def __init__(self, X: FloatArray, n_threads: int = 1):
        n, d = X.shape
        self.centre = X.mean(axis=0)
        largest = float(max(np.abs(X[at : at + IMAGE_ROWS] - self.centre).max() for at in range(0, n, IMAGE_ROWS)))
        exponent = int(np.frexp(largest)[1]) if largest > 0.0 else 0
        self.scale = float(np.ldexp(1.0, int(np.clip(-exponent, -1000, 1000))))
        sample = (X[:: -(-n // SAMPLE_ROWS)] - self.centre) * self.scale
        self.features = np.argsort(-sample.var(axis=0), kind="stable")
        with threadpool_limits(limits=n_threads, user_api="blas"):
            self.axes: FloatArray | None = _leading_axes(sample) if d > MOST_FEATURES else None
            images, _ = self._images(X)
        self._native = _core.NeighbourTree(instruction_level(), images, X, self.scale, LEAF_ROWS, n_threads)

    def _images(self, rows: FloatArray) -> tuple[np.ndarray[Any, Any], FloatArray]:
        """Images of rows, and their norms with room for rounding."""
        n, d = rows.shape
        width = min(d, MOST_FEATURES)
        images = aligned_zeros((n, -(-width // _core.NEIGHBOUR_LANES) * _core.NEIGHBOUR_LANES), np.float32)
        norms = np.empty(n)
        with np.errstate(over="ignore", under="ignore"):
            for start in range(0, n, IMAGE_ROWS):
                part = slice(start, start + IMAGE_ROWS)
                scaled = (rows[part] - self.centre) * self.scale
                norms[part] = np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * (1.0 + 1e-6)
                if self.axes is None:
                    images[part, :d] = scaled[:, self.features]
                    continue
                along = scaled @ self.axes
                scaled -= along @ self.axes.T  # not by Pythagoras: that would lose half the digits
                images[part, : width - 1] = along
                images[part, width - 1] = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
        return images, norms

    def search(self, Q: FloatArray, k: int, n_threads: int = 1) -> tuple[IntArray, FloatArray, tuple[int, int]]:
        """The k nearest rows of every query, their squared distances, and the work.

        That is numbers of images that were read, and rows whose distance was computed.
        """
        index = np.empty((len(Q), k), dtype=np.int32)
        sq_dist = np.empty((len(Q), k))
        read = np.zeros(2, dtype=np.int64)
        for start in range(0, len(Q), QUERIES_PER_CALL):
            part = slice(start, start + QUERIES_PER_CALL)
            images, norms = self._images(Q[part])
            read += self._native.search(whole_lanes(Q[part]), images, norms, index[part], sq_dist[part], n_threads)
        return index, sq_dist, (int(read[0]), int(read[1]))


def _leading_axes(sample: FloatArray) -> FloatArray:
    """Orthonormal columns, all but one of an image's numbers; zeros where rows span fewer."""
    if sample.shape[1] <= MOST_EXACT_AXES:
        _, axes = np.linalg.eigh(sample.T @ sample)
        return np.ascontiguousarray(axes[:, ::-1][:, : MOST_FEATURES - 1])
    wanted = min(MOST_FEATURES - 1, len(sample))
    found = randomized_svd(sample, wanted, random_state=0)[2]
    result = np.zeros((sample.shape[1], MOST_FEATURES - 1))
    result[:, :wanted] = found.T
    return result
