"""The command `svelto accelerate`: its options.

(No postponed annotations here: typer reads those of the function inside `add_accelerate`, whose name is a local one.)
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any


def add_accelerate(
    app: Any,
    model_file: Any,
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
    model_file, data_format, threads : typer.Argument, typer.Option
        What several commands have.
    row_formats : enum
        Choices of `data_format`.
    one_line_errors : callable
        Context manager that tells errors.
    """
    import typer

    from svelto.accelerate import METHODS
    from svelto.cli_accelerate import ACCELERATE_HELP, accelerate_file

    share = typer.Option("--agreement", metavar="SHARE", help="Labels that must agree; 'none' promises nothing.")
    sure = typer.Option("--confidence", help="Confidence at which the agreement is promised.")
    rows_a_call = typer.Option("--batch-size", min=1, help="Rows of a call to be fast for; default: many.")
    most = typer.Option("--max-bytes", min=1, help="Most bytes of the predictor.")
    seconds = typer.Option("--time-budget", min=0.001, help="Seconds after which no further candidate is built.")
    largest_error = typer.Option("--tolerance", help="Largest |error| of a regressor that counts as agreement.")

    @app.command(help=ACCELERATE_HELP)  # type: ignore[untyped-decorator]
    def accelerate(
        *,
        model: Annotated[Path, model_file],
        data: Annotated[Path, typer.Argument(metavar="DATA", help="Rows like those to come.")],
        output: Annotated[Path, typer.Option("-o", "--output", metavar="FAST", help="File to write.")],
        method: Annotated[str, typer.Option("-m", "--method", help=", ".join(METHODS))] = "auto",
        agreement: Annotated[str, share] = "0.999",
        confidence: Annotated[float, sure] = 0.95,
        batch_size: Annotated[int | None, rows_a_call] = None,
        max_bytes: Annotated[int | None, most] = None,
        time_budget: Annotated[float | None, seconds] = None,
        tolerance: Annotated[float | None, largest_error] = None,
        row_format: Annotated[row_formats | None, data_format] = None,  # type: ignore[valid-type]
        in_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
        seed: Annotated[int, typer.Option("--random-state", "--seed", min=0, help="Seed of all draws.")] = 0,
        n_jobs: Annotated[int | None, threads] = None,
    ) -> None:
        if method not in METHODS:
            raise typer.BadParameter(f"{method!r} is no method; expected one of {', '.join(METHODS)}.")
        options: dict[str, Any] = {"batch_size": batch_size, "max_bytes": max_bytes, "time_budget": time_budget}
        serving = {"max_bytes": ("auto", "taylor_tree")}
        for name, value in options.items():
            of = serving.get(name, ("auto",))
            if value is not None and method not in of:
                raise typer.BadParameter(f"--{name.replace('_', '-')} belongs to --method {' or '.join(of)}.")
        if tolerance is not None and method in ("exact", "bounded"):
            raise typer.BadParameter(f"--tolerance is of no use to --method {method}, which is exact.")
        try:
            wanted = None if agreement.lower() == "none" else float(agreement)
        except ValueError:
            raise typer.BadParameter(f"--agreement is {agreement!r}; expected a share or 'none'.") from None
        with one_line_errors():
            accelerate_file(
                model,
                data,
                output,
                file_format=None if row_format is None else row_format.value,
                as_json=in_json,
                seed=seed,
                options={**options, "tolerance": tolerance},
                method=method,
                agreement=wanted,
                confidence=confidence,
                n_jobs=n_jobs,
            )
