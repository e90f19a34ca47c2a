"""Commands that measure, and that tidy what was measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench_lib.commands.words import Address, AlsoNamed, Named, Wheels

if TYPE_CHECKING:
    from bench_lib.campaigns.plan import Plan


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
        int, typer.Option("--rounds", metavar="N", min=1, help="Finished rounds in the folder at the end.")
    ] = 10,
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="NAME", help="Name of the campaign.")
    ] = "local",
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family", metavar="NAME", help="Only this family; repeat it for more. mps runs only so."
        ),
    ] = None,
    keyword: Annotated[
        str, typer.Option("-k", metavar="EXPRESSION", help="Only cases whose names fit, as pytest's -k.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="15 samples, core cases only.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Also the grids families leave out.")] = False,
    soak: Annotated[
        float,
        typer.Option("--soak", metavar="MINUTES", help="Also soaks: the same work for so many minutes."),
    ] = 0.0,
    no_null: Annotated[
        bool, typer.Option("--no-null", help="Do not run the baseline a second time in each round.")
    ] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="auto|cuda|cpu", help="What to measure.")
    ] = "auto",
    nccl: Annotated[
        list[str] | None,
        typer.Option("--nccl", metavar="NAME=PATH", help="A libnccl by path; repeat it for more."),
    ] = None,
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="N|all", help="Ranks of a collective; all: one a GPU.")
    ] = "all",
    cool_down: Annotated[
        float | None,
        typer.Option(
            "--cool-down",
            metavar="CELSIUS",
            help="Wait before each process until the GPU is at most so much warmer than at the first one.",
        ),
    ] = None,
    results: Address = "results",
    wheels: Wheels = None,
    benchmarks: Annotated[
        Path, typer.Option("--benchmarks", metavar="DIR", help="Folder of the benchmark files.")
    ] = Path("benchmarks"),
) -> None:
    """Measure stacks in interleaved rounds, one process a stack and round; resumable."""
    from bench_lib import screen
    from bench_lib.campaigns import campaign as campaigns
    from bench_lib.doctor import first
    from bench_lib.journaling import held
    from bench_lib.places import address
    from bench_lib.ranks.joining import refuse_campaign
    from bench_lib.running import preflight
    from bench_lib.running.target import CPU, Target

    where = address.parse(results)
    refuse_campaign()
    plan = campaigns.Plan(
        campaign=campaign,
        results=where.folder,
        url=where.url,
        stacks=tuple(stack),
        rounds=rounds,
        families=tuple(family or ()),
        keyword=keyword,
        quick=quick,
        full=full,
        soak=soak,
        null=not no_null,
        device=device,
        wheels=wheels,
        ranks=ranks,
        nccl=tuple(nccl or ()),
        cool_down_c=cool_down,
        benchmarks=benchmarks,
    )
    target = Target(device)
    target.check()
    held.require_alike(plan.folder, target.device, target.detected.reason)
    preflight.refuse_nothing(plan.entries(), target.detected, *_families(plan))
    held_already = held.others(plan.folder, planned=True, policy="")
    no_gpu = preflight.without_gpu(plan.entries(), target.detected, device == CPU)
    for said in (held_already, no_gpu, first.busy()):
        if said:
            typer.echo(f"cuda-gains: {said}", err=True)
    raise typer.Exit(campaigns.run(plan, screen.console(stderr=True)))


def _families(plan: "Plan") -> tuple[set[str], set[str]]:
    """The families that a plan asks for, and those that this suite ships.

    Canaries that nobody named come along with others and are nothing that was asked for.
    """
    from bench_lib import suite_files
    from bench_lib.model import CANARY
    from bench_lib.stacking import families

    _, *suite = suite_files.folders()  # the first may be somebody's own
    shipped = {family for folder in suite for family in families.declared(folder).values()}
    return set(plan.families) or set(families.named(plan.benchmarks).values()) - {CANARY}, shipped


def merge(
    campaigns: Named = None,
    also: AlsoNamed = None,
    results: Address = "results",
) -> None:
    """Merge the runs of finished campaigns into one Parquet file a table."""
    from bench_lib.campaigns import merge as merging
    from bench_lib.errors import UsageError
    from bench_lib.places import address

    where = address.parse(results)
    names = [*(campaigns or ()), *(also or ())]
    if not names:
        raise UsageError("no campaign is named; name one: cuda-gains merge NAME")
    for name in dict.fromkeys(names):
        done = merging.merge_elsewhere(where, name) if where.url else merging.merge(where.folder, name)
        for path in done:
            typer.echo(path)


def push(
    campaigns: Named = None,
    also: AlsoNamed = None,
    results: Address = "results",
) -> None:
    """Put what was measured here to its place elsewhere, where that failed; all campaigns by default."""
    from bench_lib.errors import UsageError
    from bench_lib.places import address, writing
    from bench_lib.units import count_text

    where = address.parse(results)
    if not where.url:
        raise UsageError(f"{where.option} is a folder: what was measured is in it; name a place elsewhere")
    for name, count in writing.put_all(where, [*(campaigns or ()), *(also or ())]).items():
        typer.echo(f"{name}: {count_text(count, 'file')} put to {where}")
