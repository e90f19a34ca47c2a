"""Commands that read results: compare, report, calibrate, chart."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Campaign, Check, Contrast, Results, Sides


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
