"""`make bench-self`: measure what this suite itself costs, and write docs/performance.md."""

import datetime
import os
import platform
import sys
from pathlib import Path

from performance import harness, reading, verdict_time
from performance.figures import Figure, Part

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
HEAD = """# What this suite itself costs

Written by `make bench-self`, which measures all of it on the machine at hand in some minutes and needs no
GPU. Nothing here is a test: a busy machine is slow. Ratios are of two things measured in turns in one run.

"""


def main() -> int:
    """Measure, write the page, and say which targets are missed; the exit code is 0 either way."""
    parts = (harness.part(), verdict_time.part(ROOT / "results"), reading.part(ROOT / "results"))
    PAGE.write_text(f"{HEAD}{_machine()}\n\n" + "\n\n".join(map(_section, parts)) + "\n", encoding="utf-8")
    for figure in (figure for part in parts for figure in part.figures):
        sys.stdout.write(f"{_row(figure)}\n")
    sys.stdout.write(f"{PAGE}\n")
    return 0


def _machine() -> str:
    load = os.getloadavg()[0]
    return (
        f"Measured on {datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}: Python {platform.python_version()}, "
        f"{platform.machine()}, {os.cpu_count()} cores, load average {load:.1f} at the end."
    )


def _section(part: Part) -> str:
    rows = "\n".join(map(_row, part.figures))
    table = f"| | measured | target | |\n| --- | --- | --- | --- |\n{rows}"
    return "\n\n".join((f"## {part.title}", part.says, table, *part.more))


def _row(figure: Figure) -> str:
    verdict = "" if figure.met else "missed"
    return f"| {figure.what} | {figure.form(figure.value)} | at most {figure.form(figure.most)} | {verdict} |"


if __name__ == "__main__":
    sys.exit(main())
