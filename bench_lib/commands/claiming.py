"""The command that judges claims."""

from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Address, PageFormat, Printed

_STRICT = (
    "Exit with 1 when a claim is refuted, when nothing was judged, or when a claim of the file that "
    "--claims names is not measured."
)


def claims(
    campaign: Annotated[
        list[str] | None,
        typer.Option("--campaign", metavar="NAME", help="A campaign to judge on; repeat it. All by default."),
    ] = None,
    results: Address = "results",
    claims_file: Annotated[
        Path | None,
        typer.Option("--claims", metavar="FILE", help="The claims; benchmarks/claims.toml by default."),
    ] = None,
    benchmarks: Annotated[
        list[Path] | None,
        typer.Option(
            "--benchmarks",
            metavar="DIR",
            help="Folder of the benchmark files of your own families, which tell what a claim can name.",
        ),
    ] = None,
    output: Printed = PageFormat.TABLE,
    strict: Annotated[bool, typer.Option("--strict", help=_STRICT)] = False,
) -> None:
    """Judge published claims on what was measured: each sentence, its bound, and what was found."""
    from bench_lib.claims import judged, pages
    from bench_lib.places import reading

    folder = reading.folder(results, campaign) if campaign else reading.whole(results)
    found = judged.verdicts(folder, campaign, claims_file, benchmarks or ())
    if not found.campaigns and (said := reading.missing(folder)):  # the claims themselves are an answer, too
        typer.echo(f"cuda-gains: {said}", err=True)
    pages.show(found, output)
    if strict and (objection := pages.objection(found, claims_file is not None)):
        typer.echo(f"--strict: {objection}", err=True)
        raise typer.Exit(1)
