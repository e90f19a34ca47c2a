"""The command `cuda-gains`; what each part of it does stands in bench_lib.commands.

Exit codes: 0; 1 a case failed or nothing was measured (`run`), `--fail-on` matched, or `--strict` and a claim
is refuted; 2 wrong use; 3 the doctor found a fault; 4 refused to measure.
"""

import sys
from typing import Annotated

import typer

from bench_lib import __version__, extras
from bench_lib.commands import claiming, examining, importing, measuring, reading, reporting, stacks
from bench_lib.errors import CudaGainsError, Refused

app = typer.Typer(
    name="cuda-gains",
    help="What a CUDA driver, toolkit or PyTorch upgrade did: measured, compared, judged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(measuring.run)
app.command()(reading.compare)
app.command()(reporting.report)
app.command()(reading.calibrate)
app.command()(reading.chart)
app.command()(claiming.claims)
app.command()(examining.doctor)
app.command()(measuring.merge)
app.command()(measuring.push)
app.command("import")(importing.import_results)
app.add_typer(stacks.app, name="stacks")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"cuda-gains {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; an expected error is one sentence on stderr, never a traceback."""
    try:
        app()
    except CudaGainsError as error:
        typer.echo(f"cuda-gains: {error}", err=True)
        sys.exit(4 if isinstance(error, Refused) else 2)
    except ModuleNotFoundError as error:
        if not (extra := extras.of(error.name or "")):
            raise
        typer.echo(f"cuda-gains: {error.name} is not installed; {extras.cure(extra)}", err=True)
        sys.exit(2)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        typer.echo(f"cuda-gains: {what}; make room there or name another place", err=True)
        sys.exit(2)
