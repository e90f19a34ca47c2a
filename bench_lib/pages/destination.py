"""Where pages and charts are written: what the name after -o may be, and a name where none is given."""

import re
from pathlib import Path

from bench_lib.errors import UsageError

REPORTS, CHARTS = Path("report"), Path("charts")  # of commands without -o; git ignores both
_PAGES = (".html", ".htm")
_FILE = re.compile(r"\.[A-Za-z]{2,5}[34]?")  # .pdf, .md, .mp4; the .4 of cudart-12.4 is part of a name
_LONGEST = 100


def is_page(out: Path) -> bool:
    """Whether a report is to be one HTML file: the suffix of its name says so."""
    return out.suffix.lower() in _PAGES


def check(out: Path) -> None:
    """Raise UsageError where `out` is neither an HTML file in a folder that is there, nor a folder."""
    if not is_page(out):
        check_folder(out, "a report is one HTML file or")
    elif not out.parent.is_dir():
        raise UsageError(
            f"there is no folder {out.parent} for {out.name}; make it, or name another file with -o"
        )


def check_folder(out: Path, what: str) -> None:
    """Raise UsageError where `out` is a file or is called as one; `what` becomes a folder, in words."""
    if out.is_dir():
        return
    found = "is a file" if out.exists() else f"ends in {out.suffix} as a file does"
    if out.exists() or _FILE.fullmatch(out.suffix):
        page = ", or a .html file," if "HTML" in what else ""
        raise UsageError(f"{out} {found}, and {what} a folder; name another folder{page} with -o")


def of_sides(campaign: str, baseline: str, candidate: str) -> Path:
    """The folder of a report that was given no name: that of its sides, and of the campaign they are in."""
    one = "" if "/" in campaign or campaign in baseline else f"{campaign}-"
    plain = f"{one}{baseline}-to-{candidate}".replace(".json", "")
    return REPORTS / re.sub(r"[^A-Za-z0-9._+=-]+", "-", plain)[:_LONGEST].strip("-.")
