"""Writes docs/command-line.md from the commands themselves and the pytest plugin's options: `make docs`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from bench_lib import cli, plugin
from bench_lib.running import selection

PAGE = Path(__file__).with_name("command-line.md")
TOP = """# The command line

Made by `make docs` from the commands themselves; a test holds the two together. `cuda-gains COMMAND --help`
and, under "cuda-gains", `pytest --help` say the same.
"""
PYTEST = """
## pytest benchmarks

Options of the suite, beside pytest's own and pytest-benchmark's, such as `--benchmark-json=FILE`:
"""
MARKS = """
Marks of a case ([how they are used](add-a-family.md)):
"""


def page() -> str:
    """The whole page as Markdown."""
    options = PYTEST + _table(("option", "meaning"), _pytest_options())
    marks = MARKS + _table(("mark", "meaning"), (line.split(": ", 1) for line in selection.MARKERS))
    assert cli.__doc__ is not None
    codes = cli.__doc__.strip().split("\n\n")[1]
    return f"{TOP}\n{codes}\n" + "".join(_commands(get_command(cli.app), ("cuda-gains",))) + options + marks


def _commands(command: Any, name: tuple[str, ...]) -> Iterator[str]:
    """A section a command; a group gives those of its commands."""
    if hasattr(command, "commands"):
        for word, one in command.commands.items():
            yield from _commands(one, (*name, word))
        return
    shown = [one for one in command.params if "--help" not in one.opts]
    arguments = "".join(f" {_argument(one)}" for one in shown if one.param_type_name == "argument")
    yield f"\n## {' '.join(name)}\n\n{command.help}\n\n```sh\n{' '.join(name)} [OPTIONS]{arguments}\n```\n"
    yield _table(("argument or option", "meaning"), map(_parameter, shown)) if shown else ""


def _argument(parameter: Any) -> str:
    if "|" in parameter.metavar:  # one of many words, which the table lists
        return parameter.name.upper()
    return parameter.metavar if parameter.required else f"[{parameter.metavar}]"


def _parameter(parameter: Any) -> tuple[str, str]:
    told = [parameter.help]
    if parameter.required and parameter.param_type_name == "option":
        told.append("Required.")
    elif parameter.default not in (None, False, ()) and not callable(parameter.default):
        told.append(f"Default: `{parameter.default}`.")
    if parameter.param_type_name == "argument":
        return parameter.metavar, " ".join(told)
    value = [] if parameter.is_flag else [parameter.metavar]
    return " ".join([", ".join(parameter.opts), *value]), " ".join(told)


class _Options:
    """Stands where pytest's parser stands, and keeps what the plugin adds to it."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def getgroup(self, *_: str) -> "_Options":
        return self

    def addoption(self, name: str, **settings: Any) -> None:
        value = settings.get("metavar") or "|".join(settings.get("choices", ()))
        default = f". Default: `{settings.get('default')}`."
        text = settings["help"].replace(" (default: %(default)s).", default)
        self.rows.append((f"{name} {value}".rstrip(), text))


def _pytest_options() -> list[tuple[str, str]]:
    parser = _Options()
    plugin.pytest_addoption(parser)  # type: ignore[arg-type]
    return parser.rows


def _table(head: tuple[str, str], rows: Iterable[Iterable[str]]) -> str:
    cells = ((first.replace("|", "\\|"), then.replace("|", "\\|")) for first, then in rows)
    lines = [f"| `{first}` | {then} |" for first, then in cells]
    return "\n".join(["", f"| {' | '.join(head)} |", "| --- | --- |", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
