"""The options that several commands share: one word, one meaning, one help text."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bench_lib.errors import unknown


def _whole(results: object) -> Path:
    """The folder to read; of a place elsewhere with all its campaigns."""
    from bench_lib.places import reading

    return reading.whole(str(results))


def one_of(kind: type[StrEnum], what: str) -> dict[str, Any]:
    """How typer reads one of these words; a wrong one is answered in a sentence with the nearest."""

    def parse(text: str) -> StrEnum:
        known = [str(one) for one in kind]
        if text not in known:
            raise unknown(what, text, known)
        return kind(text)

    return {"parser": parse, "metavar": "|".join(kind)}


class PageFormat(StrEnum):
    """How what was found is printed: as a page in the terminal, for machines, or as Markdown."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


Printed = Annotated[
    PageFormat, typer.Option("--format", **one_of(PageFormat, "format"), help="How to print it.")
]
_RESULTS = "Folder of all campaigns, or a place elsewhere as s3://bucket/prefix."
Results = Annotated[Path, typer.Option("--results", metavar="DIR|URL", parser=_whole, help=_RESULTS)]
Address = Annotated[str, typer.Option("--results", metavar="DIR|URL", help=_RESULTS)]  # to name what is read
Campaign = Annotated[
    str | None,
    typer.Option("--campaign", metavar="NAME", help="The campaign the sides are in (contrasts: local)."),
]
Named = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="A campaign; more may follow.")]
AlsoNamed = Annotated[
    list[str] | None, typer.Option("--campaign", metavar="NAME", help="The same as an option; repeat it.")
]
Wheels = Annotated[
    Path | None,
    typer.Option("--wheels", metavar="DIR", help="A folder of wheels, for a machine without an index."),
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
