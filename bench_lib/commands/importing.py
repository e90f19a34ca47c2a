"""The command that reads other tools' results into the tables of this suite."""

from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Address


def import_results(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Of nccl-tests (its JSON or its table), nvbandwidth, nvbench (JSON) or SuperBench (JSONL).",
        ),
    ],
    stack: Annotated[
        str, typer.Option("--stack", metavar="NAME", help="What was measured: a side of a comparison.")
    ],
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="NAME", help="The campaign to write into.")
    ] = "imported",
    results: Address = "results",
) -> None:
    """Import results of another tool, compared with one another and never with ours."""
    from bench_lib.importing import writing
    from bench_lib.places import address
    from bench_lib.places.writing import put

    where = address.parse(results)
    for path in files:
        done = writing.import_file(path, stack, campaign, where.folder)
        typer.echo(done.sentence(path, campaign, stack))
        for note in done.notes:
            typer.echo(f"  {note}")
    put(where, campaign)
