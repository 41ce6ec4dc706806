"""Experiments of the papers, run again on this machine: `svelto reproduce s0-table1`.

An experiment measures, keeps every number in NAME.json, and renders NAME.md (and a picture, where the paper has one)
from that file alone. Files appear whole or not at all, and a table's JSON grows by one data set at a time: what is
finished survives an interruption, and `resume` goes on from there.

`s0`: Pham and Smeulders, "Metric tree partitioning and Taylor approximation for fast support vector classification".
`s1`: Ukkonen, "The support vector tree".
`s2`: Zapien Arreola, Fehr and Burkhardt, "Fast Support Vector Machine Classification of very large Datasets".
`s3`: Acevedo-Rodriguez et al., "Computational load reduction in decision functions using support vector machines".
`s4`: Segata and Blanzieri, "Fast Local Support Vector Machines for Large Datasets".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from svelto.reproduce._common import Experiment, Interrupted, Request
from svelto.reproduce._s0_figure import FIGURE2
from svelto.reproduce._s2_chain import TABLE41 as S2_TABLE41
from svelto.reproduce._s2_figure import FIGURES as S2_FIGURES
from svelto.reproduce._s3_lists import FIGURE4 as S3_FIGURE4
from svelto.reproduce._s3_trace import TABLE1 as S3_TABLE1
from svelto.reproduce._s4_cross_validation import TABLE1 as S4_TABLE1
from svelto.reproduce.s0 import TABLE1, TABLE2
from svelto.reproduce.s1 import TABLE1 as S1_TABLE1
from svelto.reproduce.s2 import TABLES5 as S2_TABLES5
from svelto.reproduce.s3 import TABLE2 as S3_TABLE2
from svelto.reproduce.s3 import TABLE3 as S3_TABLE3
from svelto.reproduce.s4 import TABLE2 as S4_TABLE2
from svelto.reproduce.s4 import TABLE3 as S4_TABLE3

__all__ = ["EXPERIMENTS", "Interrupted", "run"]

_S0: Final = (TABLE1, TABLE2, FIGURE2)
_S1: Final = (S1_TABLE1,)
_S2: Final = (S2_TABLE41, S2_TABLES5, S2_FIGURES)
_S3: Final = (S3_TABLE1, S3_TABLE2, S3_TABLE3, S3_FIGURE4)
_S4: Final = (S4_TABLE1, S4_TABLE2, S4_TABLE3)
EXPERIMENTS: Final[dict[str, Experiment]] = {e.name: e for e in (*_S0, *_S1, *_S2, *_S3, *_S4)}
DEFAULT_OUTPUT: Final = Path("docs") / "reproduction"


def run(
    experiment: str,
    *,
    output: Path = DEFAULT_OUTPUT,
    only: Sequence[str] = (),
    splits: int | None = None,
    repeats: int | None = None,
    n_jobs: int = 2,
    resume: bool = False,
    quick: bool = False,
) -> list[Path]:
    """Run an experiment and write its files.

    Parameters
    ----------
    experiment : str
        A name of `EXPERIMENTS`.
    output : Path, default=docs/reproduction
        Folder of the files; made where it does not exist.
    only : sequence of str, optional
        Data sets to measure; default: all of them. Results of the others stay as they are.
    splits : int, optional
        Random splits where the paper has no given test part; default: 10, for covtype 1, for s2's dna-paper 5.
    repeats : int, optional
        Interleaved repeats of each timing; default: 7, in s2 5.
    n_jobs : int, default=2
        Threads of this library's predictors. `SVC.predict` has one by nature.
    resume : bool, default=False
        Leave out data sets whose results, of the same settings, are in the output already.
    quick : bool, default=False
        A coarser grid of parameters; the files then end in ``-quick``.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ValueError
        Unknown experiment or data set, or an option the experiment does not have.
    Interrupted
        (a KeyboardInterrupt) Ctrl-C; says what is finished.
    """
    chosen = EXPERIMENTS.get(experiment)
    if chosen is None:
        raise ValueError(f"Unknown experiment {experiment!r}. Expected one of {', '.join(EXPERIMENTS)}.")
    given = {
        "only": list(only) or None,
        "splits": splits,
        "repeats": repeats,
        "resume": resume or None,
        "quick": quick or None,
    }
    for option, value in given.items():
        if value is not None and option not in chosen.options:
            raise ValueError(f"{experiment} has no option --{option}.")
    for option, number in (("splits", splits), ("repeats", repeats), ("jobs", n_jobs)):
        if number is not None and number < 1:
            raise ValueError(f"--{option} is {number}; expected a whole number >= 1.")
    return chosen.run(Request(output, tuple(only), splits, repeats, n_jobs, resume, quick))
