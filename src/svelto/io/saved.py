"""What can be saved in a svelto file, and `load`, which reads all of it.

`KINDS` is the whole list: a kind's name in the file, the class, and its two functions. Nothing is imported, looked up
or called because a file names it. Loading checks everything that native code relies on (lengths, types, ranges of whole
numbers, trees that end) and runs no code from the file; `docs/file-format.md` says what is checked when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from svelto import _core
from svelto._rowfiles import PathName, UnreadableFileError
from svelto._threads import check_n_jobs
from svelto.io.file import StoredFile, read_file, write_file
from svelto.io.parts import In, Out
from svelto.io.saved_local import read_local, write_local
from svelto.io.saved_machine import read_machine, write_machine
from svelto.io.saved_predictor import read_predictor, write_predictor
from svelto.io.saved_svm_tree import read_svm_tree, write_svm_tree
from svelto.machine import KernelMachine
from svelto.predictor import Predictor
from svelto.training.local import LocalSVC
from svelto.training.svm_tree import SVMTreeClassifier

Kind = tuple[type, Callable[[Out, Any], None], Callable[[In, int | None], Any]]
KINDS: Final[dict[str, Kind]] = {
    "predictor": (Predictor, write_predictor, read_predictor),
    "machine": (KernelMachine, write_machine, lambda part, n_jobs: read_machine(part, always=True)),
    "svm_tree": (SVMTreeClassifier, write_svm_tree, read_svm_tree),
    "local_svc": (LocalSVC, write_local, read_local),
}
# What checks of ours, of NumPy and of native code raise about contents that contradict each other.
_CONTRADICTIONS: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RuntimeError,
    NotImplementedError,
)


def save(model: Any, path: PathName) -> None:
    """Write a model to a svelto file.

    Parameters
    ----------
    model : Predictor, KernelMachine, SVMTreeClassifier or LocalSVC
        Fitted.
    path : path
        The file; an older one is replaced when the new one is complete and on the disk.

    Raises
    ------
    NotImplementedError
        If something in the model is Python code or an object that files do not hold. Nothing is written then.
    """
    from svelto import __version__

    for kind, (known, write, _) in KINDS.items():
        if type(model) is known:  # a subclass may hold anything
            out = Out()
            write(out, model)
            write_file(path, kind, f"svelto {__version__}", out.content, out.arrays)
            return
    raise TypeError(
        f"Cannot save a {type(model).__name__}; expected what accelerate returns, or a KernelMachine, "
        "SVMTreeClassifier or LocalSVC."
    )


def load(path: PathName, *, n_jobs: int | None = None, verify: bool = True) -> Any:
    """Read what `save` wrote: a predictor, a machine, or a fitted estimator.

    Nothing in the file is executed. Arrays stay in the file and are mapped into memory, so that several processes share
    one copy of them; do not change a file in place while it is in use (saving again replaces it, which is safe).

    Parameters
    ----------
    path : path
        The file.
    n_jobs : int, optional
        Threads of the predictor, as in `accelerate`; of an estimator the parameter of that name.
    verify : bool, default=True
        Whether the whole file is read once and compared with its checksums. False opens a file of any size in
        milliseconds: header, lengths, types and all whole numbers are checked, large arrays of floats are not looked
        at. A damaged file may then give wrong answers; it cannot do more harm than that.

    Returns
    -------
    Predictor, KernelMachine, SVMTreeClassifier or LocalSVC

    Raises
    ------
    ValueError
        If the file is damaged, no svelto file, or written by a newer version (`UnreadableFileError`).
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> import svelto
    >>> X, y = load_iris(return_X_y=True)
    >>> fast = svelto.accelerate(SVC().fit(X, y), method="exact")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fast.save(Path(folder) / "iris.svelto")
    ...     again = svelto.load(Path(folder) / "iris.svelto")
    >>> bool((again.predict(X) == fast.predict(X)).all())
    True
    """
    check_n_jobs(n_jobs)
    return load_stored(read_file(path, verify=verify), n_jobs)


def load_stored(file: StoredFile, n_jobs: int | None = None) -> Any:
    """The model of an open file."""
    if file.kind not in KINDS:
        raise UnreadableFileError(
            f"{file.path} holds a {file.kind!r:.40}; this svelto knows {', '.join(KINDS)}. Update svelto."
        )
    part = In(file, file.content)
    try:
        # Numbers that overflow while small arrays are packed again are what they were when the model was built.
        with _core.PlainArithmetic(), np.errstate(all="ignore"):
            model = KINDS[file.kind][2](part, n_jobs)
        part.finish()
    except UnreadableFileError:
        raise
    except _CONTRADICTIONS as error:
        raise UnreadableFileError(
            f"{file.path}: the contents contradict each other ({type(error).__name__}: {error}). The file is damaged, "
            "or was not written by svelto; save the model again."
        ) from error
    return model
