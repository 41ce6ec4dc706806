"""Compile exported headers together into one library, and ask them through ctypes."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np

WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror")
WRAPPER = """
#include "{name}.h"
void ask_{name}(const float *X, int n, float *decisions, int *labels) {{
    int i;
    for (i = 0; i < n; ++i) {{
        {name}_decision(X + i * {name}_N_FEATURES, decisions + i * {name}_N_OUTPUTS);
        labels[i] = {label};
    }}
}}
"""


class CLibrary:
    """Headers in a folder, by name; `regressors` have values and no labels."""

    def __init__(self, folder, names, regressors=(), *, compiler="gcc", flags=()):
        source = folder / "all.c"
        # A regressor's value stands where others have labels: it is compared through its decision.
        source.write_text(
            "".join(
                WRAPPER.format(
                    name=name,
                    label=f"{name}_value(X + i * {name}_N_FEATURES) == decisions[i]"
                    if name in regressors
                    else f"{name}_predict(X + i * {name}_N_FEATURES)",
                )
                for name in names
            )
        )
        library = folder / "all.so"
        command = [
            compiler,
            "-std=c99",
            *WARNINGS,
            "-O1",
            *flags,
            "-fPIC",
            "-shared",
            source.name,
            "-o",
            library.name,
            "-lm",
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        self._library = ctypes.CDLL(str(library))

    def ask(self, name, X, n_outputs):
        """Decision values (n, n_outputs) and labels (n,)."""
        X = np.ascontiguousarray(X, dtype=np.float32)
        decisions = np.full((len(X), n_outputs), np.nan, dtype=np.float32)
        labels = np.full(len(X), -99, dtype=np.int32)
        getattr(self._library, f"ask_{name}")(
            X.ctypes.data_as(ctypes.c_void_p),
            len(X),
            decisions.ctypes.data_as(ctypes.c_void_p),
            labels.ctypes.data_as(ctypes.c_void_p),
        )
        return decisions, labels
