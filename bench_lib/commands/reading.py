"""Commands that read results: compare, report, calibrate, chart."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Address, Campaign, Check, Contrast, PageFormat, Printed, Sides, one_of


class Format(StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    OPENMETRICS = "openmetrics"
    JUNIT = "junit"


class Chart(StrEnum):
    """A chart of whole campaigns, drawn by `chart`."""

    LAUNCH_BY_RUNTIME = "launch-by-runtime"
    PRECISION_SPEED_UP = "precision-speed-up"
    CUDNN_TUNING = "cudnn-tuning"
    MIGRATION = "migration"
    PARAMETER_EXCHANGE = "parameter-exchange"
    COMPILE_SPEED_UP = "compile-speed-up"
    COMPILE_FIRST_STEP = "compile-first-step"
    CROSS_CHECK = "cross-check"
    ALLREDUCE = "allreduce"
    NCCL_VERSIONS = "nccl-versions"
    TMA_TILES = "tma-tiles"
    ATTENTION_BACKENDS = "attention-backends"
    MPS = "mps"
    MODULE_LOADING = "module-loading"
    ALLOCATOR = "allocator"
    ALLOCATOR_SOAK = "allocator-soak"
    STREAM_OVERLAP = "stream-overlap"


class FailOn(StrEnum):
    """A change that makes `compare` exit with 1."""

    FASTER = "faster"
    SLOWER = "slower"
    UNCLEAR = "unclear"


def compare(
    sides: Sides = None,
    campaign: Campaign = None,
    results: Address = "results",
    contrast: Contrast = None,
    output: Annotated[
        Format, typer.Option("--format", **one_of(Format, "format"), help="How to print it.")
    ] = Format.TABLE,
    fail_on: Annotated[
        list[FailOn] | None,
        typer.Option(
            "--fail-on", **one_of(FailOn, "change to fail on"), help="Exit with 1 when a case did this."
        ),
    ] = None,
    check: Check = None,
) -> None:
    """Compare two sides case by case: what differs, the canaries, each case. More sides: step by step."""
    from bench_lib.formats import showing
    from bench_lib.pages import asked

    folder = asked.folder(results, sides or (), campaign, contrast, check)
    if len(sides or ()) > 2 and contrast is None:
        bridge, _ = asked.bridged(sides or (), campaign, folder, check)
        comparison = bridge.whole
        showing.show(bridge, output)
    else:
        comparison, _ = asked.compared(sides or (), campaign, folder, contrast)
        showing.show(comparison, output)
    changes = {str(row.change) for row in comparison.cases}
    if fail_on and not changes - {"not comparable"}:  # a guard that saw nothing is no pass
        typer.echo("cuda-gains: no case was compared, so --fail-on has nothing to go by", err=True)
        raise typer.Exit(1)
    if changes & set(fail_on or ()):
        raise typer.Exit(1)


def calibrate(
    stack: Annotated[
        str | None, typer.Argument(metavar="STACK", help="Where several were measured twice a round.")
    ] = None,
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="NAME", help="The campaign to calibrate.")
    ] = "local",
    results: Address = "results",
    contrast: Contrast = None,
    output: Printed = PageFormat.TABLE,
) -> None:
    """Tell the noise of this machine: a baseline against its repeat, and what can be seen past it."""
    from bench_lib.pages import asked, calibrate_page

    folder = asked.folder(results, [], campaign)
    calibrate_page.show(asked.calibrated(stack, campaign, folder, contrast), output)


def chart(
    name: Annotated[Chart, typer.Argument(**one_of(Chart, "chart"), help="Which chart.")],
    campaign: Annotated[
        list[str], typer.Option("--campaign", metavar="NAME", help="A campaign to draw; repeat it for more.")
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write.")] = Path(
        "charts"
    ),
    results: Address = "results",
) -> None:
    """Draw a chart of whole campaigns as PNG and SVG; one a stack where it shows one stack."""
    from bench_lib.comparing import sides as all_sides
    from bench_lib.comparing import store
    from bench_lib.drawing import canvas, gallery
    from bench_lib.errors import unknown
    from bench_lib.pages import destination
    from bench_lib.places import reading

    destination.check_folder(out, "charts go into")
    folder = reading.folder(results, campaign)
    there = all_sides.campaigns(folder)
    for asked_for in campaign:
        if asked_for not in there:
            raise unknown("campaign", asked_for, there, f" under {results}")
    drawn = gallery.draw(name, store.load(folder, campaign))
    out.mkdir(parents=True, exist_ok=True)
    for one in drawn:
        for path in canvas.save(one.figure, out, one.name):
            typer.echo(path)
