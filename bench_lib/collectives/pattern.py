"""Numbers whose collective is known exactly, in bf16 as in fp32, whatever the order of the sum.

Element i of rank r is (h(i) + r) mod m: small whole numbers, of which m is so chosen that the sum over
all ranks stays within the 256 up to which bf16 holds every whole number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench_lib.collectives.asked import Collective
from bench_lib.errors import WrongResult

_TILE = 1_048_573  # a prime: what lands a power of two beside its place does not fit
_EXACT = 256
_PIECE = 1 << 20  # elements

Array = NDArray[Any]  # of float32, or of uint16 for bf16


@dataclass(frozen=True)
class Numbers:
    """`count` elements of a tile that repeats, from element `begin` on."""

    tile: Array
    begin: int
    count: int

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """(offset, some of the elements), one after the other: never more than 4 MiB at once."""
        run = np.resize(self.tile, len(self.tile) + min(_PIECE, self.count))
        for offset in range(0, self.count, _PIECE):
            first = (self.begin + offset) % len(self.tile)
            yield offset, run[first : first + min(_PIECE, self.count - offset)]


def sent(asked: Collective, rank: int) -> Numbers:
    """What a rank sends."""
    if asked.op == "all_gather":
        return Numbers(_tile(asked, 0), rank * asked.count, asked.count)
    return Numbers(_tile(asked, rank), 0, asked.elements)


def received(asked: Collective, rank: int) -> Numbers:
    """What a rank must have received."""
    if asked.op in ("all_gather", "broadcast"):
        return Numbers(_tile(asked, 0), 0, asked.elements)
    m = modulus(asked.ranks)
    sums = np.array([sum((b + r) % m for r in range(asked.ranks)) for b in range(m)], dtype=np.float32)
    tile = encoded(sums[_hashes(asked) % m], asked.dtype)
    if asked.op == "all_reduce":
        return Numbers(tile, 0, asked.elements)
    return Numbers(tile, rank * asked.count, asked.count)


def modulus(ranks: int) -> int:
    """How many different numbers there are; at least two."""
    return max(2, min(17, _EXACT // ranks + 1))


def check(found: Array, wanted: Array, where: str, offset: int = 0) -> None:
    """Raise WrongResult, naming the first element that differs, unless all bits are as they should be."""
    differ = np.flatnonzero(found.view(np.uint8) != wanted.view(np.uint8)) // found.dtype.itemsize
    if len(differ):
        at = int(differ[0])
        pair = (decoded(some[at : at + 1])[0] for some in (found, wanted))
        raise WrongResult("{}: element {} is {:g}, expected {:g}".format(where, offset + at, *pair))


def encoded(values: NDArray[np.float32], dtype: str) -> Array:
    """fp32 as it is; bf16 as its upper 16 bits, which for these numbers is exact."""
    return values if dtype == "fp32" else (values.view(np.uint32) >> 16).astype(np.uint16)


def decoded(values: Array) -> NDArray[np.float32]:
    """The numbers that `encoded` made, as fp32."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _tile(asked: Collective, rank: int) -> Array:
    numbers = (_hashes(asked) + rank) % modulus(asked.ranks)
    return encoded(numbers.astype(np.float32), asked.dtype)


def _hashes(asked: Collective) -> NDArray[np.int64]:
    """h(i) of one tile: the upper half of i times an odd constant, Knuth's multiplicative hash."""
    i = np.arange(min(_TILE, asked.elements), dtype=np.int64)
    return (i * 2654435761 % (1 << 32)) >> 16
