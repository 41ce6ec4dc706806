"""`python -m svelto SCRIPT`: what a program sees and how it ends, compared with Python running it alone."""

import errno
import io
import subprocess
import sys
import zipfile

import pytest
from sklearn.svm._base import BaseLibSVM

from svelto import _core, cli, run_script

SHOW = """
import __main__, os, sys
print(sys.argv, sys.path[0], __name__, __file__, __spec__ and __spec__.name, __package__, __doc__, __cached__)
print(sorted(name for name in vars(__main__) if name not in ("__main__", "os", "sys")))
print(__main__.__dict__ is globals(), __main__ is sys.modules["__main__"], type(__loader__).__name__)
"""
PREDICT = """
import sys
from sklearn.svm import SVC
print(SVC(gamma=1.0).fit([[0.0], [1.0]], ["a", "b"]).predict([[0.2], [0.9]]))
if "svelto" in sys.modules:
    print(sys.modules["svelto.patching"].counts(), file=sys.stderr)
"""


def python(*arguments, cwd, options=()):
    done = subprocess.run(
        [sys.executable, *options, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def assert_same_run(*arguments, cwd, options=()):
    """The same exit code and output with svelto between Python and the program; returns them."""
    expected = python(*arguments, cwd=cwd, options=options)
    assert python("-m", "svelto", *arguments, cwd=cwd, options=options) == expected
    return expected


@pytest.fixture
def folder(tmp_path):
    """A folder with programs of every kind, and an empty one beside it to run them from."""
    (tmp_path / "empty").mkdir()
    programs = tmp_path / "programs"
    (programs / "package").mkdir(parents=True)
    for path in ("show.py", "package/__main__.py"):
        (programs / path).write_text(SHOW)
    (programs / "package" / "__init__.py").write_text("")
    return programs


def test_what_a_script_sees(folder):
    empty = folder.parent / "empty"
    (empty / "link.py").symlink_to(folder / "show.py")
    code, out, _ = assert_same_run("link.py", "--help", "-m", "a b", cwd=empty)
    assert code == 0
    assert str(["link.py", "--help", "-m", "a b"]) in out
    assert str(folder) in out
    assert_same_run("programs/show.py", "demo", cwd=folder.parent, options=["-P"])


def test_what_a_module_sees(folder):
    code, out, err = python("-m", "package", "x", cwd=folder)
    assert (code, err) == (0, "")
    # runpy gives a module no __annotations__ before it has one; `python -m` does.
    assert python("-m", "svelto", "-m", "package", "x", cwd=folder) == (0, out.replace("'__annotations__', ", ""), "")


def test_a_folder_or_an_archive_with_a_main(folder):
    with zipfile.ZipFile(folder / "archive", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    for path in ("package", "archive"):
        code, out, err = python(folder / path, "x", cwd=folder)
        got = python("-m", "svelto", path, "x", cwd=folder)
        assert (code, got[0], got[2]) == (0, 0, err)
        assert got[1].splitlines()[0] == out.splitlines()[0]


def test_scikit_learn_is_patched(folder):
    (folder / "predict.py").write_text(PREDICT)
    assert python("predict.py", cwd=folder) == (0, "['a' 'b']\n", "")
    expected = (0, "['a' 'b']\n", "Counts(compiled=1, served=1, passed=0)\n")
    assert python("-m", "svelto", "predict.py", cwd=folder) == expected
    assert python("-m", "svelto", "-m", "predict", cwd=folder) == expected


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("import sys; sys.stdout.write('x'); sys.exit(3)", 3),
        (
            "import json\ntry:\n    json.loads('{')\nexcept ValueError as error:\n    raise KeyError(1) from error",
            1,
        ),
        ("if True print()", 1),
        ("import sys; sys.excepthook = lambda *error: print(error[1], error[2].tb_lineno); 1 / 0", 1),
        ("import atexit; atexit.register(print, 'bye'); raise KeyboardInterrupt", -2),
    ],
)
def test_endings_and_tracebacks(folder, ending, code):
    (folder / "end.py").write_text(ending + "\n")
    assert assert_same_run("end.py", cwd=folder)[0] == code


def test_a_module_that_fails_shows_its_own_frames_only(folder):
    (folder / "end.py").write_text("def f():\n    1 / 0\nf()\n")
    code, out, err = python("-m", "svelto", "-m", "end", cwd=folder)
    assert (code, out) == (1, "")
    assert err.count("File ") == 2
    assert err.startswith("Traceback (most recent call last):")
    assert err.endswith("ZeroDivisionError: division by zero\n")


def test_threads_that_outlive_the_last_line_still_find_main(folder):
    (folder / "later.py").write_text(
        "import pickle, threading, time\n"
        "class Mine: pass\n"
        "def work():\n"
        "    time.sleep(0.2)\n"
        "    print(len(pickle.dumps(Mine())))\n"
        "threading.Thread(target=work).start()\n"
    )
    code, out, err = assert_same_run("later.py", cwd=folder)
    assert (code, err) == (0, "")
    assert int(out) > 0


def test_processes_started_by_a_script_find_its_functions(folder):
    (folder / "spawn.py").write_text(
        "import multiprocessing\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n"
    )
    assert assert_same_run("spawn.py", cwd=folder)[:2] == (0, "[2, 4]\n")


# -- the command line ------------------------------------------------------------------------------------------------


def test_commands_are_those_of_the_command_line():
    app = cli._build_app()
    assert tuple(command.name or command.callback.__name__ for command in app.registered_commands) == cli.COMMANDS


@pytest.mark.parametrize("arguments", [["--help"], ["info", "no-model"]])
def test_the_command_line_answers_as_ever(run, tmp_path, arguments):
    code, out, err = run(*arguments)
    assert python("-m", "svelto", *arguments, cwd=tmp_path) == (code, out.decode(), err)


def test_help_names_scripts(run):
    assert b"python -m svelto SCRIPT" in run("--help")[1]


def test_a_command_wins_over_a_file_of_its_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "info").write_text("print('a script')")
    assert python("-m", "svelto", "./info", cwd=tmp_path) == (0, "a script\n", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["svelto", "info"])
    with pytest.raises(SystemExit) as leaving:
        run_script.main()
    assert leaving.value.code == 2
    assert "Missing argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.py"], f"gone.py: there is no such script, and no such command ({', '.join(cli.COMMANDS)})."),
        (["-m"], "-m needs the name of a module: python -m svelto -m MODULE [ARGS...]."),
        (["locked.py"], "locked.py: Permission denied."),
        (["-m", "this"], f"SVELTO_ISA is 'mmx'; this CPU and build offer {', '.join(_core.available_levels())}."),
    ],
)
def test_what_is_missing(tmp_path, monkeypatch, capsys, arguments, message):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    (tmp_path / "locked.py").write_text("")
    monkeypatch.setattr(io, "open_code", refuse)
    monkeypatch.setenv("SVELTO_ISA", "mmx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["svelto", *arguments])
    with pytest.raises(SystemExit) as leaving:
        run_script.main()
    assert (leaving.value.code, *capsys.readouterr()) == (2, "", f"svelto: {message}\n")
    assert not hasattr(BaseLibSVM._dense_predict, "__wrapped__")  # nothing was patched
