"""The command `cuda-gains`: parse, call one function of the library, print. Imports are heavy below.

Exit codes: 0; 1 a case failed (`run`) or `--fail-on` matched; 2 wrong use; 4 refused to measure.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench_lib import __version__
from bench_lib.errors import CudaGainsError, Refused

app = typer.Typer(
    name="cuda-gains",
    help="What a CUDA driver, toolkit or PyTorch upgrade did: measured, compared, judged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
stacks_app = typer.Typer(help="The stacks of benchmarks/stacks.toml.", no_args_is_help=True)
app.add_typer(stacks_app, name="stacks")


class Format(StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


class CalibrateFormat(StrEnum):
    """How a calibration is printed."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


class Chart(StrEnum):
    """A chart of whole campaigns, drawn by `chart`."""

    LAUNCH_BY_RUNTIME = "launch-by-runtime"
    PRECISION_SPEED_UP = "precision-speed-up"
    CUDNN_TUNING = "cudnn-tuning"
    MIGRATION = "migration"
    PARAMETER_EXCHANGE = "parameter-exchange"
    COMPILE_SPEED_UP = "compile-speed-up"
    COMPILE_FIRST_STEP = "compile-first-step"


class FailOn(StrEnum):
    """A change that makes `compare` exit with 1."""

    FASTER = "faster"
    SLOWER = "slower"
    UNCLEAR = "unclear"


Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Folder of all campaigns.")]
Campaign = Annotated[
    str | None,
    typer.Option("--campaign", metavar="NAME", help="The campaign the sides are in (contrasts: local)."),
]
Wheels = Annotated[
    Path | None,
    typer.Option("--wheels", metavar="DIR", help="Wheels of runtimes, for a machine without an index."),
]
Contrast = Annotated[
    str | None,
    typer.Option(
        "--contrast",
        metavar="P=X:Y",
        help="Compare value Y of parameter P with value X inside each run of one stack.",
    ),
]
Sides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="A B",
        help="Baseline and candidate: a stack or arm of the campaign, CAMPAIGN/STACK, a campaign that "
        "holds one stack, or a --benchmark-json file; more of them are a bridge of steps. With "
        "--contrast: one STACK, or none.",
    ),
]
Check = Annotated[
    str | None,
    typer.Option("--check", metavar="CAMPAIGN", help="Of a bridge: a campaign that measured its ends apart."),
]
Stacks = Annotated[list[str], typer.Argument(metavar="NAME...", help="Stacks by name.")]


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


@app.command()
def run(
    stack: Annotated[
        list[str],
        typer.Option(
            "--stack",
            metavar="NAME",
            help="A stack to measure; repeat it. The first is the baseline and runs twice a round.",
        ),
    ],
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Finished rounds in the folder at the end.")
    ] = 10,
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="NAME", help="Name of the campaign.")
    ] = "local",
    family: Annotated[
        list[str] | None,
        typer.Option("--family", metavar="NAME", help="Only this family; repeat it for more."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="15 samples, core cases only.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Also the grids families leave out.")] = False,
    no_null: Annotated[
        bool, typer.Option("--no-null", help="Do not run the baseline a second time in each round.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cuda or cpu.")] = "auto",
    results: Results = Path("results"),
    wheels: Wheels = None,
    benchmarks: Annotated[
        Path, typer.Option("--benchmarks", metavar="DIR", help="Folder of the benchmark files.")
    ] = Path("benchmarks"),
) -> None:
    """Measure stacks in interleaved rounds, one process a stack and round; resumable."""
    from rich.console import Console

    from bench_lib import campaign as campaigns

    plan = campaigns.Plan(
        campaign=campaign,
        results=results,
        stacks=tuple(stack),
        rounds=rounds,
        families=tuple(family or ()),
        quick=quick,
        full=full,
        null=not no_null,
        device=device,
        wheels=wheels,
        benchmarks=benchmarks,
    )
    raise typer.Exit(campaigns.run(plan, Console(stderr=True)))


@app.command()
def compare(
    sides: Sides = None,
    campaign: Campaign = None,
    results: Results = Path("results"),
    contrast: Contrast = None,
    output: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
    fail_on: Annotated[
        list[FailOn] | None, typer.Option("--fail-on", help="Exit with 1 when a case did this.")
    ] = None,
    check: Check = None,
) -> None:
    """Compare two sides case by case: what differs, the canaries, each case. More sides: step by step."""
    from bench_lib import asked, bridge_page, render

    if len(sides or ()) > 2 and contrast is None:
        found, _ = asked.bridged(sides or (), campaign, results, check)
        comparison = found.whole
        bridge_page.show(found, output)
    else:
        comparison, _ = asked.compared(sides or (), campaign, results, contrast)
        if output is Format.TABLE:
            render.text(comparison)
        else:
            typer.echo(getattr(render, {"md": "markdown"}.get(output, output))(comparison), nl=False)
    changes = {str(row.change) for row in comparison.cases}
    if changes & set(fail_on or ()):
        raise typer.Exit(1)


@app.command()
def report(
    sides: Sides = None,
    out: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write.")] = Path(
        "report"
    ),
    campaign: Campaign = None,
    results: Results = Path("results"),
    contrast: Contrast = None,
    check: Check = None,
) -> None:
    """Write a comparison, or a bridge, as Markdown with charts (PNG and SVG) into a folder."""
    from bench_lib import asked, bridge_page, store
    from bench_lib import report as reports
    from bench_lib import sides as all_sides

    more = []
    if len(sides or ()) > 2 and contrast is None:
        bridge, data = asked.bridged(sides or (), campaign, results, check)
        comparison, more = bridge.whole, bridge_page.sections(bridge)
    else:
        comparison, data = asked.compared(sides or (), campaign, results, contrast)
    of_a_file = any(side.endswith(".json") for side in sides or ())
    known = not of_a_file and comparison.campaign in all_sides.campaigns(results)
    whole = store.load(results, [comparison.campaign]) if known else None
    typer.echo(reports.write_folder(comparison, data, out, whole, more))


@app.command()
def calibrate(
    stack: Annotated[
        str | None, typer.Argument(metavar="STACK", help="Where several were measured twice a round.")
    ] = None,
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="NAME", help="The campaign to calibrate.")
    ] = "local",
    results: Results = Path("results"),
    contrast: Contrast = None,
    output: Annotated[CalibrateFormat, typer.Option("--format", help="How to print it.")] = (
        CalibrateFormat.TABLE
    ),
) -> None:
    """Tell the noise of this machine: a baseline against its repeat, and what can be seen past it."""
    from bench_lib import asked, calibrate_page

    calibrate_page.show(asked.calibrated(stack, campaign, results, contrast), output)


@app.command()
def chart(
    name: Annotated[Chart, typer.Argument(help="Which chart.")],
    campaign: Annotated[
        list[str], typer.Option("--campaign", metavar="NAME", help="A campaign to draw; repeat it for more.")
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write.")] = Path(
        "report"
    ),
    results: Results = Path("results"),
) -> None:
    """Draw a chart of whole campaigns as PNG and SVG; one a stack where it shows one stack."""
    from bench_lib import canvas, gallery, store
    from bench_lib import sides as all_sides

    there = all_sides.campaigns(results)
    for asked_for in campaign:
        if asked_for not in there:
            raise all_sides.unknown("campaign", asked_for, there, f" under {results}")
    drawn = gallery.draw(name, store.load(results, campaign))
    out.mkdir(parents=True, exist_ok=True)
    for one in drawn:
        for path in canvas.save(one.figure, out, one.name):
            typer.echo(path)


@app.command()
def merge(
    campaigns: Annotated[list[str], typer.Argument(metavar="CAMPAIGN...", help="Campaigns to merge.")],
    results: Results = Path("results"),
) -> None:
    """Merge the runs of a finished campaign into one Parquet file a table."""
    from bench_lib import merge as merging

    for name in campaigns:
        for path in merging.merge(results, name):
            typer.echo(path)


@stacks_app.command("list")
def stacks_list() -> None:
    """List the stacks, and which of them are here."""
    from rich.console import Console
    from rich.table import Table

    from bench_lib import stock

    table = Table("stack", "kind", "requirement", "here", box=None)
    for row in stock.listing():
        table.add_row(*(str(cell) for cell in row))
    Console().print(table)


@stacks_app.command("show")
def stacks_show(names: Stacks) -> None:
    """Show what a stack is made of, where it lies, and the versions its libraries give."""
    from rich.console import Console
    from rich.table import Column, Table

    from bench_lib import stock

    for name in names:
        table = Table("", Column("", overflow="fold"), box=None, show_header=False)
        for key, value in stock.described(name).items():
            if value:
                table.add_row(key, value)
        Console().print(table)


@stacks_app.command("create")
def stacks_create(names: Stacks, wheels: Wheels = None) -> None:
    """Fetch what a stack needs into the cache, and check that it is what it declares."""
    from bench_lib import stock

    for name in names:
        typer.echo(f"{name}: {stock.create(name, wheels, lambda line: typer.echo(line, err=True))}")


@stacks_app.command("remove")
def stacks_remove(names: Stacks) -> None:
    """Remove stacks from the cache."""
    from bench_lib import stock

    for name in names:
        stock.remove(name)
        typer.echo(f"{name}: removed")


def main() -> None:
    """Run the command; an expected error is one sentence on stderr, never a traceback."""
    try:
        app()
    except CudaGainsError as error:
        typer.echo(f"cuda-gains: {error}", err=True)
        sys.exit(4 if isinstance(error, Refused) else 2)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        typer.echo(f"cuda-gains: {what}; make room there or name another place", err=True)
        sys.exit(2)
