"""Putting results where they belong, after they were written on this machine."""

from collections.abc import Sequence

from bench_lib.errors import Unreachable
from bench_lib.places import mirror
from bench_lib.places.address import Address
from bench_lib.places.mirror import Mirror
from bench_lib.places.place import Place


def put(address: Address, campaign: str) -> int:
    """Put what a campaign has that was not put yet; how many files.

    In a folder of this machine all is where it belongs. Raises Unreachable with the command that
    does it later; the files are kept.
    """
    if not address.url:
        return 0
    one = Mirror(Place.open(address), campaign)
    try:
        return one.push()
    except Unreachable as error:
        raise Unreachable(one.not_put(error)) from None


def put_all(address: Address, campaigns: Sequence[str] | None = None) -> dict[str, int]:
    """Campaign -> how many files were put now, of those named or of all on this machine."""
    names = campaigns or mirror.here(Place.open(address))
    return {name: put(address, name) for name in names}
