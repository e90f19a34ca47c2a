"""The folder that a reading command reads: for a place elsewhere, with what it names fetched into it."""

from collections.abc import Iterable
from pathlib import Path

from bench_lib.errors import UsageError, unknown
from bench_lib.places import address, mirror
from bench_lib.places.place import Place


def folder(results: str, campaigns: Iterable[str] = (), perhaps: Iterable[str] = ()) -> Path:
    """The folder to read campaigns from; of a place elsewhere only new files of those named are fetched.

    `perhaps` are names that may be campaigns. Raises UsageError for a campaign that is not there, naming
    the nearest, and for a folder of this machine that is not there; Unreachable.
    """
    found, wanted, perhaps = address.parse(results), set(campaigns), set(perhaps)
    if found.url and (wanted or perhaps):
        place = Place.open(found)
        known = sorted({*place.folders(), *mirror.here(place)})
        for name in sorted(wanted - set(known)):
            raise unknown("campaign", name, known, f" at {place}")
        mirror.fetch(place, sorted(wanted | (perhaps & set(known))))
    elif (wanted or perhaps) and (said := missing(found.folder)):
        raise UsageError(said)
    return found.folder


def missing(folder: Path) -> str:
    """That a folder of results is not there, and what to do, in a sentence; "" where it is."""
    if folder.exists():
        return ""
    where = "" if folder.is_absolute() else f" in {Path.cwd()}"
    return (
        f"there is no folder {folder}{where}; go to where you measured (the clone), or name it with --results"
    )


def whole(results: str) -> Path:
    """The folder to read, with every campaign that is there. Raises as `folder`."""
    found = address.parse(results)
    return folder(results, Place.open(found).folders() if found.url else ())
