"""Exported C headers as contenders: a small program that times each call of `predict` by itself.

The program reads rows from a file, answers `n` of them after a warm-up, and writes the nanoseconds of each call, then
the labels. One process for each turn; its start is not timed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from _latency import WARM_UP, Contender

COMPILER = "gcc"
FLAGS = ("-std=c11", "-O3")
PROGRAM = """
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "m.h"

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* rows.bin n_rows first n warm_up: n times as int64 to stdout, then n labels as int32 */
int main(int argc, char **argv) {
    if (argc != 6) return 2;
    const long n_rows = atol(argv[2]), first = atol(argv[3]), n = atol(argv[4]), warm_up = atol(argv[5]);
    float *rows = malloc(sizeof(float) * (size_t)n_rows * m_N_FEATURES);
    int64_t *taken = malloc(sizeof(int64_t) * (size_t)n);
    int32_t *labels = malloc(sizeof(int32_t) * (size_t)n);
    FILE *file = fopen(argv[1], "rb");
    if (!rows || !taken || !labels || !file) return 1;
    if (fread(rows, sizeof(float) * m_N_FEATURES, (size_t)n_rows, file) != (size_t)n_rows) return 1;
    for (long i = -warm_up; i < n; ++i) {
        const long at = i < 0 ? 0 : i;
        const float *row = rows + (size_t)((first + at) % n_rows) * m_N_FEATURES;
        const int64_t begin = now();
        const int label = m_predict(row);
        taken[at] = now() - begin;
        labels[at] = label;
    }
    fwrite(taken, sizeof(int64_t), (size_t)n, stdout);
    fwrite(labels, sizeof(int32_t), (size_t)n, stdout);
    return 0;
}
"""


def can_compile() -> bool:
    """Whether the compiler is there."""
    return shutil.which(COMPILER) is not None


class CProgram:
    """A predictor's header, compiled with its timer; `rows` are those that it is asked about."""

    def __init__(self, fast: Any, rows: np.ndarray, folder: Path) -> None:
        self.folder, self.n_rows = folder, len(rows)
        folder.mkdir(parents=True)
        # Rows as C reads them, so that what is measured for the header's comment is what it is asked.
        self.written = fast.export_c(folder / "m.h", name="m", X=rows[:1000].astype(np.float32).astype(np.float64))
        (folder / "main.c").write_text(PROGRAM)
        subprocess.run([COMPILER, *FLAGS, "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
        np.ascontiguousarray(rows, dtype=np.float32).tofile(folder / "rows.bin")

    def ask(self, first: int, n_calls: int, warm_up: int = WARM_UP) -> tuple[np.ndarray, np.ndarray]:
        """Nanoseconds and labels of so many calls."""
        command = ["./main", "rows.bin", str(self.n_rows), str(first), str(n_calls), str(warm_up)]
        out = subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.PIPE).stdout
        return np.frombuffer(out, np.int64, n_calls), np.frombuffer(out, np.int32, n_calls, offset=8 * n_calls)


def c_contender(name: str, program: CProgram, note: str = "") -> Contender:
    """The program, as one that takes turns."""
    return Contender(name, lambda first, n_calls: program.ask(first, n_calls)[0], note)
