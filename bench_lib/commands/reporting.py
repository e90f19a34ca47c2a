"""The command that writes reports: of one comparison, or all that a results folder lists."""

from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Address, Campaign, Check, Contrast, Sides


def report(
    sides: Sides = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="NAME.html for one page in a file, else a folder to write; by default a folder in report/ "
            "that is named after the sides, of --all report/ itself.",
        ),
    ] = None,
    campaign: Campaign = None,
    results: Address = "results",
    contrast: Contrast = None,
    check: Check = None,
    all_listed: Annotated[
        bool,
        typer.Option("--all", help="Every report that reports.toml of the results lists, and their index."),
    ] = False,
) -> None:
    """Write a comparison, or a bridge, as one HTML file, or as Markdown with charts into a folder."""
    from bench_lib.html import asking, shipped
    from bench_lib.pages import asked, destination
    from bench_lib.pages import report as reports
    from bench_lib.places import reading

    if all_listed:
        shipped.only_all(sides, campaign, contrast, check)
        typer.echo(
            shipped.write(
                reading.whole(results), out or destination.REPORTS, lambda line: typer.echo(line, err=True)
            )
        )
        return
    if out is not None:
        destination.check(out)
    folder = asked.folder(results, sides or (), campaign, contrast, check)
    subject = asking.reported(sides or (), campaign, folder, contrast, check)
    typer.echo(reports.write(subject, out))
