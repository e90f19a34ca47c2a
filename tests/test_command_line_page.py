"""docs/command-line.md is what the commands and the plugin say of themselves."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_is_what_the_commands_say() -> None:
    made = runpy.run_path(str(DOCS / "command_line.py"))["page"]()
    assert made == (DOCS / "command-line.md").read_text(), "run `make docs`"


def test_pytest_knows_every_option_of_the_page(pytester) -> None:
    """The page is written without pytest's parser; what it took for an option is one."""
    part = (DOCS / "command-line.md").read_text().split("## pytest benchmarks")[1]
    options = [line.split("`")[1].split()[0] for line in part.splitlines() if line.startswith("| `--")]
    assert len(options) > 10
    said = pytester.runpytest("--help").stdout.str()
    assert not [option for option in options if f"\n  {option}" not in said]
