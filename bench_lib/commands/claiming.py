"""The command that judges claims."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Results


class ClaimsFormat(StrEnum):
    """How verdicts are printed."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


def claims(
    campaign: Annotated[
        list[str] | None,
        typer.Option("--campaign", metavar="NAME", help="A campaign to judge on; repeat it. All by default."),
    ] = None,
    results: Results = Path("results"),
    claims_file: Annotated[
        Path | None,
        typer.Option("--claims", metavar="FILE", help="The claims; benchmarks/claims.toml by default."),
    ] = None,
    output: Annotated[ClaimsFormat, typer.Option("--format", help="How to print it.")] = ClaimsFormat.TABLE,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when a claim is refuted.")] = False,
) -> None:
    """Judge published claims on what was measured: each sentence, its bound, and what was found."""
    from bench_lib.claims import judged, pages

    found = judged.verdicts(results, campaign, claims_file)
    pages.show(found, output)
    if strict and pages.refuted(found):
        raise typer.Exit(1)
