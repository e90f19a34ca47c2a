"""The folder that a reading command reads: for a place elsewhere, with what it names fetched into it."""

from collections.abc import Iterable
from pathlib import Path

from bench_lib.errors import unknown
from bench_lib.places import address, mirror
from bench_lib.places.place import Place


def folder(results: str, campaigns: Iterable[str] = (), perhaps: Iterable[str] = ()) -> Path:
    """The folder to read campaigns from; of a place elsewhere only new files of those named are fetched.

    `perhaps` are names that may be campaigns. Raises UsageError for a campaign that is not there, naming
    the nearest, and Unreachable.
    """
    found, wanted, perhaps = address.parse(results), set(campaigns), set(perhaps)
    if found.url and (wanted or perhaps):
        place = Place.open(found)
        known = sorted({*place.folders(), *mirror.here(place)})
        for name in sorted(wanted - set(known)):
            raise unknown("campaign", name, known, f" at {place}")
        mirror.fetch(place, sorted(wanted | (perhaps & set(known))))
    return found.folder


def whole(results: str) -> Path:
    """The folder to read, with every campaign that is there. Raises as `folder`."""
    found = address.parse(results)
    return folder(results, Place.open(found).folders() if found.url else ())
