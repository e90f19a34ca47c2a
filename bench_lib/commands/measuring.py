"""Commands that measure, and that tidy what was measured."""

from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Results, Wheels


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
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="N|all", help="Ranks of a collective; all: one a GPU.")
    ] = "all",
    results: Results = Path("results"),
    wheels: Wheels = None,
    benchmarks: Annotated[
        Path, typer.Option("--benchmarks", metavar="DIR", help="Folder of the benchmark files.")
    ] = Path("benchmarks"),
) -> None:
    """Measure stacks in interleaved rounds, one process a stack and round; resumable."""
    from rich.console import Console

    from bench_lib import campaign as campaigns
    from bench_lib import preflight
    from bench_lib.target import CPU, Target

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
        ranks=ranks,
        benchmarks=benchmarks,
    )
    target = Target(device)
    target.check()
    if said := preflight.without_gpu(plan.entries(), target.detected, device == CPU):
        typer.echo(f"cuda-gains: {said}", err=True)
    raise typer.Exit(campaigns.run(plan, Console(stderr=True)))


def merge(
    campaigns: Annotated[list[str], typer.Argument(metavar="CAMPAIGN...", help="Campaigns to merge.")],
    results: Results = Path("results"),
) -> None:
    """Merge the runs of a finished campaign into one Parquet file a table."""
    from bench_lib import merge as merging

    for name in campaigns:
        for path in merging.merge(results, name):
            typer.echo(path)
