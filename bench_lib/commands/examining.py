"""The command `doctor`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bench_lib.commands.words import Results


def doctor(
    stack: Annotated[str, typer.Option("--stack", metavar="NAME", help="The stack to look at.")] = "here",
    as_json: Annotated[bool, typer.Option("--json", help="Print it for machines (docs/doctor.md).")] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=1.0, metavar="SECONDS", help="How long torch may take to import."),
    ] = 30.0,
    results: Results = Path("results"),
) -> None:
    """Say what is wrong with this environment, and the line that mends it. Exit code 3: a check failed."""
    from bench_lib import screen
    from bench_lib.doctor import checks, gather, page
    from bench_lib.stacking import stacks

    snapshot = gather.snapshot(stacks.stack(stack), results, timeout)
    answers = checks.look(snapshot)
    answer = page.document(snapshot, answers)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        page.show(answer, screen.console())
    raise typer.Exit(answer["exit_code"])
