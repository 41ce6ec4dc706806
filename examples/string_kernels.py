"""Two kernels on strings, as functions of two sequences of strings: spectrum(A, B) and subsequences(A, B).

    spectrum      words of 3 to 5 letters that both strings have in the same place, up to 2 letters: some microseconds a
                  value (Leslie et al. 2002, with the place added: for splice sites it matters where a word stands)
    subsequences  letters in the same order, with gaps between them: some 30 microseconds a value (Lodhi et al. 2002,
                  with the soft matches of Saunders et al. 2002)

Both are sums of products of features, hence positive definite. Strings may differ in length.

The words of a string are kept (`lru_cache`), because a tree asks for the same string at every node. A machine with all
support vectors finds them once a call in any case, so the cache makes neither side look better than it is; `forget`
empties it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

# Words of the spectrum kernel, and letters that share a place.
WORD_LENGTHS = (3, 4, 5)
PLACE = 3
# Subsequences have up to ORDER letters; a letter that is skipped between two of them costs the factor DECAY, and
# letters that stand n places apart match by exp(-n / WIDTH).
ORDER, DECAY, WIDTH = 2, 0.8, 1.0
# Pairs of strings that are worked on at once: matrices that stay in the cache of the processor.
PAIRS = 16


def spectrum(A: Sequence[str], B: Sequence[str]) -> np.ndarray:
    """Kernel matrix: the number of pairs of equal words in equal places."""
    others = [_words(b) for b in B]
    return np.array([[_common(_words(a), other) for other in others] for a in A], dtype=float)


@lru_cache(maxsize=100_000)
def _words(text: str) -> Counter[str]:
    return Counter(f"{i // PLACE} {text[i : i + n]}" for n in WORD_LENGTHS for i in range(len(text) - n + 1))


def _common(a: Counter[str], b: Counter[str]) -> int:
    return sum([a[word] * b[word] for word in a.keys() & b.keys()])


def forget() -> None:
    """Empty the cache of words, so that a timing starts as a new process does."""
    _words.cache_clear()


def subsequences(A: Sequence[str], B: Sequence[str]) -> np.ndarray:
    """Kernel matrix: common subsequences of 1, ..., ORDER letters, each weighted by its gaps and its shift.

    With M the matches of the letters of a and b, and L[i, j] = DECAY^(i - j - 1) for i > j, the subsequences whose last
    letters are a_i and b_j weigh  X_1 = M,  X_p = M * (L X_(p-1) L'); the value of order p is the sum of X_p.
    """
    length = max(map(len, (*A, *B)))
    near, carry = _weights(length)
    a, b = _letters(A, length, "\0"), _letters(B, length, "\1")
    values = np.empty(len(a) * len(b))
    for start in range(0, len(values), PAIRS):
        i, j = np.divmod(np.arange(start, min(start + PAIRS, len(values))), len(b))
        M = np.where(a[i, :, None] == b[j, None, :], near, 0.0)
        X = total = M
        for _ in range(ORDER - 1):
            X = M * (carry @ X @ carry.T)
            total = total + X
        values[start : start + len(i)] = total.sum(axis=(1, 2))
    return values.reshape(len(a), len(b))


@lru_cache
def _weights(length: int) -> tuple[np.ndarray, np.ndarray]:
    at = np.arange(length)
    apart = at[:, None] - at
    carry = np.where(apart > 0, DECAY ** (np.abs(apart) - 1.0), 0.0)
    return np.exp(-np.abs(apart) / WIDTH), carry


def _letters(texts: Sequence[str], length: int, fill: str) -> np.ndarray:
    """Strings as rows of numbers; what fills up short ones matches nothing."""
    padded = "".join(text.ljust(length, fill) for text in texts)
    return np.frombuffer(padded.encode("utf-32-le"), dtype=np.uint32).reshape(len(texts), length)
