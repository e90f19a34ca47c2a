"""Which file of a benchmark folder holds which family, read from the text: nothing is imported."""

import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

from bench_lib.errors import UsageError, nearest

_PREFIXES = ("bench_", "test_")  # of files in which pytest looks for cases, and of their functions
_SOME_FAMILY = re.compile(r"^(?:\w+\s*,\s*)*FAMILY\b", re.MULTILINE)
# As it stands in a file: with a type perhaps, or before others in one line, `FAMILY, MARGIN = "sums", 0.05`.
_FAMILY = re.compile(
    r"""^FAMILY(?:\s*:[^=\n]+|(?:\s*,\s*\w+)+)?\s*=\s*["']([\w-]+)["'][ \t]*(?:[,#].*)?\r?$""", re.MULTILINE
)
_CASE = re.compile(r"^def (?:bench|test)_\w+\([^)]*\bbench\b", re.MULTILINE)  # asks for our fixture


@cache
def declared(folder: Path) -> dict[Path, str]:
    """The family that each `bench_*.py` of a folder declares; files that declare none are left out."""
    found = {}
    for path in sorted(folder.glob("bench_*.py")):
        if match := _FAMILY.search(path.read_text(errors="replace")):
            found[path] = match[1]
    return found


def named(place: Path) -> dict[Path, str]:
    """The family of each benchmark file in or below `place`, by its FAMILY, else by the file's name.

    A file whose FAMILY is computed is left out.
    """
    return {path: family for path in _files(place) if (family := _of(path))}


def files(places: Iterable[Path], asked: Collection[str] = ()) -> dict[str, set[Path]]:
    """The files in or below `places` of each family, of all or of those asked for; see `named`."""
    found: dict[str, set[Path]] = {}
    for place in places:
        for path, family in named(place).items():
            if not asked or family in asked:
                found.setdefault(family, set()).add(path)
    return found


def is_other(path: Path, asked: tuple[str, ...]) -> bool:
    """Whether a file declares a family that is not asked for, while its folder has all that are.

    Such a file need not be collected. When one is missing everything is: the error then names what
    there is.
    """
    families = declared(path.parent)
    known = set(families.values())
    return bool(asked) and set(asked) <= known and families.get(path, asked[0]) not in asked


def has_cases(place: Path) -> bool:
    """Whether a `bench_*.py` in a folder, or this file, has a function that asks for our fixture `bench`."""
    paths = [place] if place.is_file() else place.glob("bench_*.py")
    return any(path.match("bench_*.py") and _CASE.search(path.read_text(errors="replace")) for path in paths)


def from_suite(place: Path, asked: Iterable[str], folders: Iterable[Path]) -> tuple[Path, ...]:
    """The files of the suite's `folders` with families that are asked for and that `place` does not have.

    None for a place without a benchmark file, which is a mistake that pytest names.
    """
    wanted = set(asked)
    lacking = wanted - set(named(place).values()) if wanted and _files(place) else set()
    found: dict[str, Path] = {}
    for folder in folders if lacking else ():
        for path, family in declared(folder).items():
            if family in lacking:
                found.setdefault(family, path)
    return tuple(path for _, path in sorted(found.items()))


def check(place: Path, asked: Iterable[str], folders: Iterable[Path] = ()) -> None:
    """Raise UsageError, naming the nearest, for a family that no benchmark file in or below `place` has.

    Nor one of the suite's `folders`. Nothing is said where a file's family is known only once it is imported.
    """
    asked = list(asked)
    if not (own := _known(place) if asked else set()):
        return
    known = own.union(*(declared(folder).values() for folder in folders))
    where = f"{place} or the suite" if known - own else str(place)
    for name in asked:
        if name not in known:
            raise UsageError(f"there is no family {name!r} in {where}; {nearest(name, known)}")


def _known(place: Path) -> set[str]:
    """The families of all files; empty when there are none, or one of them cannot be told from its text."""
    families = [_of(path) for path in _files(place)]
    return set(families) if all(families) else set()


def _files(place: Path) -> list[Path]:
    """The files below a folder in which pytest looks for cases, or the file that was named."""
    if place.is_file():
        return [place]
    return sorted(path for prefix in _PREFIXES for path in place.rglob(f"{prefix}*.py"))


def _of(path: Path) -> str:
    """FAMILY of a file, else its name without the prefix; "" when FAMILY is not written out."""
    text = path.read_text(errors="replace")
    if match := _FAMILY.search(text):
        return match[1]
    return "" if _SOME_FAMILY.search(text) else bare(path.stem)


def bare(name: str) -> str:
    """The name of a file or of a function without what makes pytest look into it."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name
