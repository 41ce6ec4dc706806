"""The command line: `svelto demo`, `info`, `predict`, `accelerate`, `bench`, `export`, `reproduce`.

Arguments in, one call, text out. Results go to stdout or to the file of `-o`, everything else to stderr. Exit codes: 0,
1 for files and values that are wrong (one line, no traceback), 2 for wrong usage, 130 after Ctrl-C.

typer and rich come with the extra [cli] and are imported by `main`, so that importing this module never fails. (No
postponed annotations here: typer reads those of the functions inside `_build_app`, where its name is a local one.)
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from scipy import sparse

import svelto
from svelto._rowfiles import FORMATS, RowFile, format_of, write_atomically, write_results
from svelto._typing import Rows
from svelto.accelerate_command import add_accelerate
from svelto.bench_command import add_bench
from svelto.cli_saved import check_probabilities, open_saved, saved_answers, saved_facts, saved_rows
from svelto.export_command import add_export
from svelto.io.file import is_svelto_file
from svelto.model_rows import rows_for

COMMANDS = ("demo", "info", "predict", "accelerate", "bench", "export", "reproduce")
HELP = """Fast prediction with trained kernel machines.

`python -m svelto SCRIPT [ARGS...]` and `python -m svelto -m MODULE [ARGS...]` run a program of yours with the SVMs of
scikit-learn predicting through svelto. A script with the name of a command needs its folder: ./demo
"""
MISSING_EXTRA = 'The command line needs typer and rich: pip install "svelto[cli]"'
PREDICT_HELP = f"""Predict rows with a LIBSVM model, as svm-predict does, or with a svelto file.

Without -o the predictions go to stdout and the accuracy to stderr; with -o OUT the predictions go to OUT and the
accuracy to stdout. OUT appears only when it is complete. The suffix .npy or .csv of OUT chooses its format; any other
name gets svm-predict's text. With -b 1 the first column is the label of highest probability (svelto file: the label
without -b 1), the others are the probabilities in the order of the 'labels' line. --json prints one JSON object: the
predictions (unless -o takes them), and the accuracy.

DATA is {", ".join(FORMATS)}, by its suffix or by --format, compressed with bz2, xz or gzip if you like. LIBSVM text may
have fewer features than the model (what is missing is zero), or more: those count as zero in every support vector, as
for svm-predict; --strict-width makes them an error. Other formats must have exactly the model's features, and no label
column.
"""
REPRODUCE_HELP = """Run an experiment of a paper again and write its table or figure as Markdown, JSON and PNG into DIR.

EXPERIMENT is s0-table1, s0-table2 or s0-figure2 (Pham and Smeulders, metric tree with Taylor expansions); s1-table1
(Ukkonen, support vector tree); s2-table4.1, s2-tables5 or s2-figures (Zapien Arreola et al., decision tree of linear
SVMs); s3-table1, s3-table2, s3-table3 or s3-fig4 (Acevedo-Rodriguez et al., bounded decision functions); s4-table1,
s4-table2 or s4-table3 (Segata and Blanzieri, local SVMs). Data sets are found as `svelto.datasets.load` finds them.
Each data set's result is written as soon as it is there.
"""
# What svm-predict says of a regression model trained with -b 1.
NOISE_MODEL = """Prob. model for test data: target value = predicted value + z,
z: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma=%g"""
INTERRUPTED = 130
UNREADABLE = 1
USAGE = 2


class RowFormat(StrEnum):
    """The choices of --format."""

    libsvm = "libsvm"
    csv = "csv"
    npy = "npy"
    npz = "npz"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; leaves by `SystemExit` with the exit code."""
    try:
        import rich  # noqa: F401 - asked for here, so that a half-installed extra is told in one line too
        import typer  # noqa: F401
    except ImportError:
        print(MISSING_EXTRA, file=sys.stderr)
        sys.exit(USAGE)
    _build_app()(args=None if argv is None else list(argv), prog_name="svelto")


def _build_app() -> Any:
    import typer

    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    rows_help = "Rows of the generated set's training part; twice as many are predicted."
    seed_help = "Seed of the generated set and of the splits."

    as_json = typer.Option("--json", help="As JSON.")

    @app.command()
    def demo(
        rows: Annotated[int, typer.Option(min=100, help=rows_help)] = 5_000,
        seed: Annotated[int, typer.Option(min=0, help=seed_help)] = 0,
        *,
        in_json: Annotated[bool, as_json] = False,
    ) -> None:
        """Compare labels and time with scikit-learn on three SVMs."""
        with _one_line_errors():
            from svelto.demo import run_demo

            run_demo(rows, seed, as_json=in_json)

    model_file = typer.Argument(metavar="MODEL", help="LIBSVM model file, or svelto file.")

    @app.command()
    def info(model: Annotated[Path, model_file], *, in_json: Annotated[bool, as_json] = False) -> None:
        """Show what a model file holds."""
        with _one_line_errors():
            for line in describe(model, as_json=in_json):
                print(line)

    output_file = typer.Option("-o", "--output", metavar="OUT", help="File for the predictions; default: stdout.")
    zero_or_one = typer.Option("-b", "--probability", min=0, max=1, help="1: write probabilities too.")
    no_messages = typer.Option("-q", "--quiet", help="No accuracy, no messages.")
    data_format = typer.Option("--format", help="Format of DATA; default: by its suffix.")
    no_wider = typer.Option("--strict-width", help="Refuse features that the model does not know.")
    threads = typer.Option("-j", "--n-jobs", help="Threads; default: the library's choice.")

    @app.command(help=PREDICT_HELP)
    def predict(
        *,
        model: Annotated[Path, model_file],
        data: Annotated[Path, typer.Argument(metavar="DATA", help="Rows to predict.")],
        output: Annotated[Path | None, output_file] = None,
        probability: Annotated[int, zero_or_one] = 0,
        quiet: Annotated[bool, no_messages] = False,
        row_format: Annotated[RowFormat | None, data_format] = None,
        strict_width: Annotated[bool, no_wider] = False,
        in_json: Annotated[bool, as_json] = False,
        n_jobs: Annotated[int | None, threads] = None,
    ) -> None:
        with _one_line_errors():
            chosen = None if row_format is None else row_format.value
            predict_file(
                model,
                data,
                output,
                file_format=chosen,
                probability=bool(probability),
                quiet=quiet,
                strict_width=strict_width,
                as_json=in_json,
                n_jobs=n_jobs,
            )

    add_accelerate(app, model_file, data_format, threads, RowFormat, _one_line_errors)
    add_bench(app, data_format, threads, RowFormat, _one_line_errors)
    add_export(app, model_file, data_format, threads, RowFormat, _one_line_errors)

    one_set = typer.Option("--only", metavar="NAME", help="Only this data set; may be repeated.")
    n_splits = typer.Option(
        "--splits",
        min=1,
        help="Number of splits: random ones where the paper has no test part, the first of its own in s1-table1.",
    )
    n_repeats = typer.Option("--repeats", min=1, help="Repeats of each timing.")
    coarse = typer.Option("--quick", help="s4-table1: a coarser grid of parameters, for minutes.")
    go_on = typer.Option("--resume", help="Skip data sets measured before with the same settings.")

    @app.command(help=REPRODUCE_HELP)
    def reproduce(
        *,
        experiment: Annotated[str, typer.Argument(metavar="EXPERIMENT")],
        output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR")] = Path("docs/reproduction"),
        only: Annotated[list[str] | None, one_set] = None,
        splits: Annotated[int | None, n_splits] = None,
        repeats: Annotated[int | None, n_repeats] = None,
        jobs: Annotated[int, typer.Option("-j", "--jobs", min=1, help="Threads.")] = 2,
        resume: Annotated[bool, go_on] = False,
        quick: Annotated[bool, coarse] = False,
        in_json: Annotated[bool, as_json] = False,
    ) -> None:
        from svelto.reproduce import Interrupted, run

        with _one_line_errors():
            try:
                files = run(
                    experiment,
                    output=output,
                    only=only or (),
                    splits=splits,
                    repeats=repeats,
                    n_jobs=jobs,
                    resume=resume,
                    quick=quick,
                )
            except Interrupted as stop:  # what was finished stays, so the general message would be wrong
                print(f"svelto: {stop}", file=sys.stderr)
                sys.exit(INTERRUPTED)
            if in_json:
                print(json.dumps({"experiment": experiment, "files": [str(file) for file in files]}))
                return
            for file in files:
                print(file)

    @app.callback(invoke_without_command=True)
    def common(version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False) -> None:
        if version:
            print(f"svelto {svelto.__version__}")
            raise typer.Exit()

    return app


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn what a user can cause into one line on stderr and an exit code."""
    try:
        yield
    except BrokenPipeError:
        raise  # `svelto predict ... | head`: the framework ends quietly
    except KeyboardInterrupt:
        print("svelto: interrupted, nothing was written.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        # The system's own errors carry the name apart from the words; ours are whole sentences.
        named = error.filename is not None and error.strerror is not None
        print(f"svelto: {error.filename}: {error.strerror}." if named else f"svelto: {error}", file=sys.stderr)
        sys.exit(UNREADABLE)
    except (ValueError, NotImplementedError, MemoryError) as error:
        print(f"svelto: {error or type(error).__name__}", file=sys.stderr)
        sys.exit(UNREADABLE)


@contextlib.contextmanager
def _spinner(what: str, quiet: bool = False) -> Iterator[None]:
    """Show that work goes on, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


# -- info --------------------------------------------------------------------------------------------------------


def describe(path: Path, *, as_json: bool = False) -> list[str]:
    """Say what a model file holds, one aligned ``name  value`` line for each fact, or all of them as JSON."""
    if is_svelto_file(path):
        return _fact_lines(saved_facts(path), as_json)
    machine = svelto.KernelMachine.from_libsvm(path)
    vectors = machine.support_vectors
    facts: dict[str, object] = {
        "file": f"{path} ({path.stat().st_size:,} bytes)",
        "type": f"{machine.svm_type} ({machine.task})",
        "kernel": machine.kernel,
        "support vectors": f"{machine.n_sv:,}",
        "features": "set by the kernel matrix" if machine.n_features is None else f"{machine.n_features:,}",
    }
    if machine.kernel.name != "precomputed":
        n_stored = vectors.nnz if sparse.issparse(vectors) else int(np.count_nonzero(vectors))
        kind = "sparse" if machine.has_sparse_vectors else "dense"
        facts["stored as"] = f"{kind}, {n_stored / max(vectors.shape[0] * vectors.shape[1], 1):.1%} nonzero"
    if machine.classes is not None and machine.vote_order is not None:
        labels = [str(label) for label in machine.classes[machine.vote_order].tolist()]
        if machine.n_support is not None:
            counts = machine.n_support.tolist()
            labels = [f"{label} ({count:,} SVs)" for label, count in zip(labels, counts, strict=True)]
        facts["classes"] = f"{machine.n_classes}: {', '.join(labels)}"
        facts["probabilities"] = "yes (predict -b 1)" if machine.platt is not None else "no"
    facts["scores a row"] = machine.n_scores
    facts["bytes in memory"] = f"{_n_bytes(machine):,}"
    if as_json:
        numbers = {
            "support vectors": machine.n_sv,
            "features": machine.n_features,
            "bytes in memory": _n_bytes(machine),
        }
        facts |= numbers
    return _fact_lines(facts, as_json)


def _fact_lines(facts: dict[str, Any], as_json: bool) -> list[str]:
    if as_json:
        return [json.dumps(facts, default=str)]
    width = max(len(name) for name in facts)
    return [f"{name:<{width}}  {value}" for name, value in facts.items()]


def _n_bytes(machine: svelto.KernelMachine) -> int:
    vectors = machine.support_vectors
    parts = [vectors.data, vectors.indices, vectors.indptr] if sparse.issparse(vectors) else [vectors]
    return sum(int(part.nbytes) for part in [*parts, machine.dual_coef, machine.intercept])


# -- predict -----------------------------------------------------------------------------------------------------


def predict_file(
    model: Path,
    data: Path,
    output: Path | None = None,
    *,
    file_format: str | None = None,
    probability: bool = False,
    quiet: bool = False,
    strict_width: bool = False,
    as_json: bool = False,
    n_jobs: int | None = None,
) -> None:
    """Read, predict, write; see `svelto predict --help`."""
    if is_svelto_file(model):
        with _spinner("reading", quiet):
            saved = open_saved(model, n_jobs)
            if probability:
                check_probabilities(saved, model)
            X, rows = saved_rows(saved, data, file_format)
        regression = hasattr(saved, "machine") and saved.machine.task == "regression"
        _tell(lambda: saved_answers(saved, X, probability), rows, regression, output, quiet, as_json)
        return
    with _spinner("reading", quiet):
        machine = svelto.KernelMachine.from_libsvm(model)
        _check_probability(machine, model, probability)
        machine, X, rows = rows_for(machine, data, file_format, strict_width=strict_width)
    if probability and machine.noise_scale is not None and not (quiet or as_json):
        print(NOISE_MODEL % machine.noise_scale, file=sys.stdout if output is not None else sys.stderr)
    if machine.platt is not None and not (probability or quiet):
        print("The model can give probabilities; -b 1 writes them.", file=sys.stderr)
    regression = machine.task == "regression"
    _tell(lambda: _answers(machine, X, probability, n_jobs), rows, regression, output, quiet, as_json)


def _tell(answer: Any, rows: RowFile, regression: bool, output: Path | None, quiet: bool, as_json: bool) -> None:
    """Predict, write, and say how good it was."""
    with contextlib.ExitStack() as stack:
        # Opened first: a target that cannot be written is better told before the work than after it.
        file = sys.stdout.buffer if output is None else stack.enter_context(write_atomically(output))
        with _spinner(f"predicting {rows.X.shape[0]:,} rows", quiet):
            predictions, probabilities, labels = answer()
        if output is not None or not as_json:
            write_results(file, "libsvm" if output is None else format_of(output), predictions, probabilities, labels)
        file.flush()
    if as_json:
        facts: dict[str, Any] = {"rows": len(predictions)}
        if output is None:
            facts["predictions"] = np.asarray(predictions).tolist()
            if probabilities is not None:
                facts |= {"labels": np.asarray(labels).tolist(), "probabilities": probabilities.tolist()}
        if rows.y is not None and len(rows.y):
            facts |= _scores(regression, predictions, rows.y)
        print(json.dumps(facts))
    elif rows.y is not None and not quiet:
        for line in _summary(regression, predictions, rows.y):
            print(line, file=sys.stderr if output is None else sys.stdout)


def _scores(regression: bool, predictions: Any, y: Any) -> dict[str, Any]:
    """The accuracy, or the mean squared error, for JSON."""
    if not regression:
        return {"accuracy": float(np.mean(np.asarray(predictions) == y))}
    with np.errstate(over="ignore", invalid="ignore"):  # labels near the largest number: no error that JSON can hold
        error = float(np.mean((np.asarray(predictions, dtype=np.float64) - y) ** 2))
    return {"mean_squared_error": error if np.isfinite(error) else None}


def _check_probability(machine: svelto.KernelMachine, model: Path, probability: bool) -> None:
    known = machine.platt, machine.density_marks, machine.noise_scale
    if probability and all(part is None for part in known):
        raise ValueError(f"{model} holds no probabilities. Use -b 0, or train with svm-train -b 1.")


def _answers(machine: svelto.KernelMachine, X: Rows, probability: bool, n_jobs: int | None) -> tuple[Any, Any, Any]:
    """Predictions, and with probabilities also their matrix and labels, columns in LIBSVM's label order."""
    fast = svelto.accelerate(machine, method="exact", n_jobs=n_jobs)
    # No rows is an empty answer here, as in svm-predict; the library refuses it, as scikit-learn does.
    if not probability or machine.task == "regression":
        return (fast.predict(X) if X.shape[0] else np.empty(0)), None, None
    by_class = fast.predict_proba(X) if X.shape[0] else np.empty((0, max(machine.n_classes, 2)))
    if machine.classes is None:
        return (fast.predict(X) if X.shape[0] else np.empty(0)), by_class, ["normal", "outlier"]
    labels, in_vote_order = machine.classes[machine.vote_order], by_class[:, machine.vote_order]
    # svm-predict -b 1 takes the label of highest probability, which need not be the winner of the vote.
    return labels[in_vote_order.argmax(axis=1)], in_vote_order, labels


def _summary(regression: bool, predictions: Any, y: Any) -> list[str]:
    """Say what svm-predict says after a run."""
    n_rows = len(y)
    if n_rows == 0:
        return ["No rows, nothing predicted."]
    if not regression:
        n_right = int(np.count_nonzero(predictions == y))
        return [f"Accuracy = {n_right / n_rows * 100:g}% ({n_right}/{n_rows}) (classification)"]
    p = np.asarray(predictions, dtype=np.float64)
    # Constant targets have no correlation: nan, as LIBSVM says; and numbers near the largest one overflow.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mean_square = np.mean((p - y) ** 2)
        correlation = np.float64(n_rows * (p @ y) - p.sum() * y.sum()) ** 2 / (
            (n_rows * (p @ p) - p.sum() ** 2) * (n_rows * (y @ y) - y.sum() ** 2)
        )
    return [
        f"Mean squared error = {mean_square:g} (regression)",
        f"Squared correlation coefficient = {correlation:g} (regression)",
    ]
