"""The command `svelto bench`: its options, and which of its two benchmarks they ask for.

(No postponed annotations here: typer reads those of the function inside `add_bench`, where its name is a local one.)
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

HELP: Final = """Build every method for a LIBSVM model and compare them: promise, agreement, time, memory.

DATA holds rows like those to come (labels are not looked at): methods are built on half of them and measured on the
others. Times are of a row, in batches of --batch-size; the exact engine is what all are compared with. The last line is
what svelto would choose by itself; --html writes its report as a page, --json prints the figures.

With --suite and without MODEL and DATA: the standing benchmark. Machines on the data sets in the folder SVELTO_DATA,
every method and "auto" beside what one would pick instead (scikit-learn, scikit-learn-intelex, onnxruntime, Nystroem
with a linear SVM, LightGBM: pip install "svelto[bench]"). Each machine is kept as soon as it is measured: a run that
was interrupted goes on where it was, and code that has changed is measured again.
"""
INTERRUPTED: Final = 130
AGREEMENT: Final = 0.999


def add_bench(
    app: Any,
    data_format: Any,
    threads: Any,
    row_formats: type[StrEnum],
    one_line_errors: Callable[[], AbstractContextManager[None]],
) -> None:
    """Add the command to an application.

    Parameters
    ----------
    app : typer.Typer
        The application.
    data_format, threads : typer.Option
        Options that several commands have.
    row_formats : enum
        Choices of `data_format`.
    one_line_errors : callable
        Context manager that tells errors.
    """
    import typer

    only_help = "Suite: only this data set, or machine ('a9a tuned'); may be repeated."
    limit_help = "Suite: seconds after which no further machine is begun."

    @app.command(help=HELP)  # type: ignore[untyped-decorator]
    def bench(
        context: typer.Context,
        *,
        model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="LIBSVM model file.")] = None,
        data: Annotated[Path | None, typer.Argument(metavar="DATA", help="Rows like those to come.")] = None,
        method: Annotated[
            list[str] | None,
            typer.Option("-m", "--method", metavar="METHOD", help="Only this method; may be repeated."),
        ] = None,
        agreement: Annotated[
            float, typer.Option("--agreement", help="Share of labels that must agree; 1 for all of them.")
        ] = AGREEMENT,
        tolerance: Annotated[
            float | None, typer.Option("--tolerance", help="Largest |error| of a regressor that counts as agreement.")
        ] = None,
        batch_size: Annotated[
            int | None, typer.Option("--batch-size", min=1, help="Rows of a call; default: all at once.")
        ] = None,
        row_format: Annotated[row_formats | None, data_format] = None,  # type: ignore[valid-type]
        as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
        html: Annotated[
            Path | None,
            typer.Option(
                "--html", metavar="PAGE", help="File for the report of what is chosen, or for the suite's page."
            ),
        ] = None,
        seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all draws.")] = 0,
        n_jobs: Annotated[int | None, threads] = None,
        whole_suite: Annotated[bool, typer.Option("--suite", help="Run the standing benchmark.")] = False,
        data_folder: Annotated[
            Path | None,
            typer.Option("--data", metavar="DIR", help="Suite: folder of data sets; default: SVELTO_DATA."),
        ] = None,
        only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help=only_help)] = None,
        quick: Annotated[bool, typer.Option("--quick", help="Suite: a trial on few machines and rows.")] = False,
        rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Suite: rounds of timing.")] = None,
        time_limit: Annotated[float | None, typer.Option("--time-limit", min=0, help=limit_help)] = None,
        markdown: Annotated[
            Path | None,
            typer.Option("--markdown", metavar="PAGE", help="Suite: file for the page; a picture goes beside it."),
        ] = None,
        readme: Annotated[
            Path | None,
            typer.Option("--readme", metavar="FILE", help="Suite: put a table between its marks."),
        ] = None,
        json_file: Annotated[
            Path | None,
            typer.Option("--json-file", metavar="FILE", help="Suite: file for the figures."),
        ] = None,
        results: Annotated[Path, typer.Option("--results", metavar="DIR", help="Suite: folder of results.")] = Path(
            "bench-results"
        ),
        prepare: Annotated[
            bool,
            typer.Option("--prepare", help="Suite: only train and build what can be kept."),
        ] = False,
        again: Annotated[bool, typer.Option("--again", help="Suite: measure anew what is there already.")] = False,
        pages: Annotated[bool, typer.Option("--pages", help="Suite: measure nothing, write the pages.")] = False,
    ) -> None:
        with one_line_errors():
            check_given(given_options(context), whole_suite=whole_suite, model=model, data=data)
            if not whole_suite:
                from svelto.cli_bench import bench_file

                bench_file(
                    model,  # type: ignore[arg-type] # checked
                    data,  # type: ignore[arg-type]
                    methods=method,
                    agreement=agreement,
                    tolerance=tolerance,
                    batch_size=batch_size,
                    file_format=None if row_format is None else row_format.value,
                    as_json=as_json,
                    html=html,
                    seed=seed,
                    n_jobs=n_jobs,
                )
                return
            from svelto.reproduce import Interrupted
            from svelto.suite.cli import Files, bench_suite
            from svelto.suite.run import Request

            request = Request(
                data=data_folder,
                only=tuple(only or ()),
                quick=quick,
                rounds=rounds,
                time_limit=time_limit,
                results=results,
                prepare=prepare,
                again=again,
                pages_only=pages,
            )
            try:
                bench_suite(request, Files(markdown, html, readme, json_file), as_json=as_json)
            except Interrupted as stop:  # what was finished stays, so the general message would be wrong
                print(f"svelto: {stop}", file=sys.stderr)
                sys.exit(INTERRUPTED)


# Options of one benchmark that mean nothing to the other.
OF_A_MODEL: Final = ("method", "agreement", "tolerance", "batch_size", "row_format", "seed", "n_jobs")
OF_THE_SUITE: Final = (
    *("data_folder", "only", "quick", "rounds", "time_limit", "markdown", "readme", "json_file", "results"),
    *("prepare", "again", "pages"),
)


def given_options(context: Any) -> dict[str, str]:
    """Options that stand on the command line, by the name of their parameter."""
    given = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "COMMANDLINE":
            given[parameter.name] = max(parameter.opts, key=len)
    return given


def check_given(given: dict[str, str], *, whole_suite: bool, model: Path | None, data: Path | None) -> None:
    """Refuse a mixture of the two benchmarks."""
    if whole_suite and (model is not None or data is not None):
        raise ValueError(
            f"--suite has machines of its own, but {model or data} is named too. Leave out MODEL and DATA; figures go "
            "to a file by --json-file."
        )
    if not whole_suite and (model is None or data is None):
        raise ValueError(f"Missing argument '{'MODEL' if model is None else 'DATA'}'; or use --suite.")
    for name in OF_A_MODEL if whole_suite else OF_THE_SUITE:
        if name in given:
            where = "is for MODEL and DATA, not for --suite" if whole_suite else "is for --suite"
            raise ValueError(f"{given[name]} {where}. See svelto bench --help.")
    if whole_suite and "prepare" in given and "pages" in given:
        raise ValueError("--prepare and --pages exclude each other: one measures nothing, the other writes nothing.")
