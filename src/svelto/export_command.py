"""The command `svelto export`: its options.

(No postponed annotations here: typer reads those of the function inside `add_export`, where its name is a local one.)
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

EXPORT_HELP: Final = """Write a model as one C header (-o OUT.h: tables and loops, for C99 and C++, nothing to link but
-lm), or as an ONNX graph of standard operators (-o OUT.onnx, for onnxruntime and others like it).

Without --method a svelto file is written as it is (`svelto accelerate` makes one), and of a LIBSVM model the whole sum
over support vectors. With a method DATA holds rows like those to come (labels are not looked at); the model is
accelerated on them first. --agreement none writes a stage alone. What is written is compared with the predictor, on
DATA or on the support vectors.
"""


def add_export(
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

    out_file = typer.Option("-o", "--output", metavar="OUT", help="The file to write: OUT.h or OUT.onnx.")
    header_file = typer.Option("--c", metavar="OUT.h", help="The C header to write, whatever its suffix.")
    prefix = typer.Option("--name", help="Prefix of all names in the header; default: the file's name.")
    number_type = typer.Option("--dtype", help="C: float32, int16 or int8, of large tables. ONNX: float32 or float64.")
    chosen_method = typer.Option("-m", "--method", metavar="METHOD", help="Method to accelerate with first.")
    share = typer.Option("--agreement", help="Share of labels that must agree; 'none': one stage answers every row.")
    units = typer.Option("--size", min=1, help="Hinges, leaves or basis vectors of the stage; default: the method's.")
    flash = typer.Option("--max-bytes", min=1, help="Most bytes of tables (C).")
    draws = typer.Option("--seed", min=0, help="Seed of all draws.")

    @app.command(help=EXPORT_HELP)  # type: ignore[untyped-decorator]
    def export(
        *,
        model: Annotated[Path, model_file],
        data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="Rows like those to come.")] = None,
        output: Annotated[Path | None, out_file] = None,
        c: Annotated[Path | None, header_file] = None,
        name: Annotated[str | None, prefix] = None,
        dtype: Annotated[str, number_type] = "float32",
        method: Annotated[str | None, chosen_method] = None,
        agreement: Annotated[str, share] = "0.999",
        size: Annotated[int | None, units] = None,
        max_bytes: Annotated[int | None, flash] = None,
        row_format: Annotated[row_formats | None, data_format] = None,  # type: ignore[valid-type]
        as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
        seed: Annotated[int, draws] = 0,
        n_jobs: Annotated[int | None, threads] = None,
    ) -> None:
        from svelto.cli_export import export_file

        with one_line_errors():
            export_file(
                model,
                data,
                output,
                c,
                name=name,
                dtype=dtype,
                method=method,
                agreement=agreement,
                size=size,
                max_bytes=max_bytes,
                file_format=None if row_format is None else row_format.value,
                as_json=as_json,
                seed=seed,
                n_jobs=n_jobs,
            )
