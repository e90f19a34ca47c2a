"""Which file of a benchmark folder holds which family, read from the text: nothing is imported."""

import re
from functools import cache
from pathlib import Path

_FAMILY = re.compile(r"""^FAMILY\s*=\s*["']([\w-]+)["']""", re.MULTILINE)


@cache
def declared(folder: Path) -> dict[Path, str]:
    """The family that each `bench_*.py` of a folder declares; files that declare none are left out."""
    found = {}
    for path in sorted(folder.glob("bench_*.py")):
        if match := _FAMILY.search(path.read_text(errors="replace")):
            found[path] = match[1]
    return found


def is_other(path: Path, asked: tuple[str, ...]) -> bool:
    """Whether a file declares a family that is not asked for, while its folder has all that are.

    Such a file need not be collected. When one is missing everything is: the error then names what
    there is.
    """
    families = declared(path.parent)
    known = set(families.values())
    return bool(asked) and set(asked) <= known and families.get(path, asked[0]) not in asked
