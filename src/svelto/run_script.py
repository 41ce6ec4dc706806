"""`python -m svelto SCRIPT [ARGS...]`: run a program with scikit-learn patched, as Python itself would run it.

The first argument decides: a command (`demo`, `info`, ...) or an option is one for `svelto.cli`, `-m` names a module,
anything else is a script. The program sees what it would see without svelto: its own `sys.argv`, `__main__`,
`sys.path[0]` and `__file__`; its exit code is the exit code, and its tracebacks start in it.
"""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
import types
import zipfile
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from typing import NoReturn

from svelto.cli import COMMANDS, USAGE
from svelto.cli import main as command_line
from svelto.patching import patch_sklearn


def main() -> None:
    """Run what `sys.argv` asks for."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        if len(arguments) < 2:
            _leave("-m needs the name of a module: python -m svelto -m MODULE [ARGS...].")
        run_module(arguments[1], arguments[2:])
    elif not arguments or arguments[0].startswith("-") or arguments[0] in COMMANDS:
        command_line()
    else:
        run_file(arguments[0], arguments[1:])


def run_file(path: str, arguments: list[str]) -> None:
    """Run a script, or a folder or zip file with a `__main__.py`, as ``python path arguments`` does.

    Parameters
    ----------
    path : str
        The script.
    arguments : list of str
        Its arguments.
    """
    if not os.path.exists(path):
        _leave(f"{path}: there is no such script, and no such command ({', '.join(COMMANDS)}).")
    file = os.path.abspath(path)
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        _start([path, *arguments], None)  # runpy puts the folder or archive itself on the path
        _run(lambda: runpy.run_path(file, run_name="__main__"))
        return
    try:
        with io.open_code(file) as stream:
            source = stream.read()
    except OSError as error:
        _leave(f"{path}: {error.strerror}.")
    _start([path, *arguments], os.path.dirname(os.path.realpath(path)))
    # Not runpy: it takes the module away when the script's last line is done, and threads may go on after that.
    module = types.ModuleType("__main__")
    module.__loader__ = SourceFileLoader("__main__", file)
    module.__dict__.update(__file__=file, __builtins__=builtins, __cached__=None, __annotations__={})
    sys.modules["__main__"] = module
    _run(lambda: exec(compile(source, file, "exec", dont_inherit=True), module.__dict__))


def run_module(name: str, arguments: list[str]) -> None:
    """Run a module, or the `__main__` of a package, as ``python -m name arguments`` does.

    Parameters
    ----------
    name : str
        The module.
    arguments : list of str
        Its arguments.
    """
    _patch()
    sys.argv = [name, *arguments]  # runpy puts the module's file in the first place
    _run(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


def _run(program: Callable[[], object]) -> None:
    """Call the program; an error leaves with the traceback that it would have had without us."""
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:
        _forget_our_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        # It has been shown. Going on to raise it leaves the exit code to Python: 1, or the signal of Ctrl-C.
        sys.excepthook = lambda *_: None
        raise


def _forget_our_frames(error: BaseException) -> None:
    ours = {__file__, runpy.run_module.__code__.co_filename}
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename in ours:
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def _start(argv: list[str], folder: str | None) -> None:
    _patch()
    sys.argv = argv
    if not sys.flags.safe_path:  # with `python -P` nothing stands in front
        sys.path[:1] = [] if folder is None else [folder]  # in the place of the current folder


def _patch() -> None:
    try:
        patch_sklearn()
    except (ValueError, RuntimeError) as error:
        _leave(str(error))


def _leave(message: str) -> NoReturn:
    print(f"svelto: {message}", file=sys.stderr)
    sys.exit(USAGE)
