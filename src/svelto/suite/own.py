"""svelto's side: "auto", and every method that it could have chosen, at one agreement.

Single methods take long to build and do not look at the clock ("bounded" does): once built, they are kept, as long as
the code that built them stays the same. "auto" decides by times on this computer, so it is built when it is measured.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from svelto.accelerate import accelerate
from svelto.predictor import Predictor
from svelto.reproduce._common import OtherLoad
from svelto.suite.contender import Contender, Predict
from svelto.suite.machines import SEED, Case, kept

AGREEMENT: Final = 0.999
CONFIDENCE: Final = 0.95
# Threads that methods are built with, and that "auto" decides for.
N_JOBS: Final = 2
# "sv_tree" is for kernels that take long to evaluate; on vectors "auto" does not try it either.
SINGLES: Final = ("exact", "bounded", "hinges", "taylor_tree", "reduced_set")
KEPT: Final = ("hinges", "taylor_tree", "reduced_set")


def build_own(case: Case, method: str, folder: Path, key: str) -> Contender:
    """A predictor by its method; `key` names the machine and the code."""

    def make() -> tuple[Predictor, dict[str, Any]]:
        load, started = OtherLoad(), perf_counter()
        # The table on the terminal is the only thing to be drawn: no terminal, no progress of `accelerate`.
        with warnings.catch_warnings(record=True) as caught, redirect_stderr(StringIO()):
            warnings.simplefilter("always")
            fast = accelerate(
                case.machine,
                case.X_train,
                method=method,
                agreement=AGREEMENT,
                confidence=CONFIDENCE,
                n_jobs=N_JOBS,
                random_state=SEED,
            )
        seconds = perf_counter() - started
        return fast, {
            "seconds": seconds,
            "other_load": load.cores(),
            "warned": [str(warning.message) for warning in caught],
        }

    fast, about = kept(folder, f"{key}-{method}", make) if method in KEPT else make()
    report = fast.report
    chosen_by = str(report.details.get("chosen by", ""))
    if "interrupted" in chosen_by:  # "auto" ends its search at Ctrl-C; here all work is to end
        raise KeyboardInterrupt
    facts: dict[str, Any] = {
        "method": report.method,
        "promise": report.promise,
        "asked": AGREEMENT,
        "bound": report.agreement_bound,
        "chosen_by": chosen_by,
        "tried": [
            {
                "method": trial.method,
                "setting": trial.setting,
                "microseconds": trial.microseconds,
                "agreement": trial.agreement,
                "seconds": trial.build_seconds,
                "chosen": trial.chosen,
            }
            for trial in report.tried
        ],
        "stages": {name: float(share) for name, share in fast.work(case.X_test)["stages"].items()},
        "array_bytes": int(fast.nbytes),
        "build_other_load": about["other_load"],
        "warned": about["warned"],
    }
    stages = ", ".join(f"{name} {share:.1%}" for name, share in facts["stages"].items() if share)
    note = f"chose {report.method}; {stages}" if method == "auto" else stages
    return Contender(
        method,
        case.X_test,
        lambda n_threads: _predict_with(fast, n_threads),
        len(pickle.dumps(fast)),
        about["seconds"],
        note,
        facts=facts,
    )


def _predict_with(fast: Predictor, n_threads: int) -> Predict:
    own = copy.copy(fast)
    own.n_jobs = n_threads
    return own.predict
