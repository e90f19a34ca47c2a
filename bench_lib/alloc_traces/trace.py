"""A trace: blocks that are allocated and freed in order; and its account, counted without any allocator."""

import gzip
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bench_lib.errors import DataError

Size = Callable[[int], int]  # bytes asked for -> bytes that count


class Event(NamedTuple):
    """A block by number: of so many bytes from now on, or freed where that is 0."""

    block: int
    nbytes: int


class Account(NamedTuple):
    """What a trace holds at most, and where."""

    peak_nbytes: int
    at_peak: int  # events played when that is first reached
    allocations: int
    left: tuple[int, ...]  # blocks that it never frees, in the order of their allocation


@dataclass(frozen=True)
class Trace:
    """Events in order. Numbers of blocks may be used again once they are free."""

    name: str
    events: tuple[Event, ...]

    @cached_property
    def account(self) -> Account:
        """The account in the bytes that were asked for."""
        return account(self.events)

    @property
    def sha256(self) -> str:
        """Of its events: traces that agree in it are the same."""
        return hashlib.sha256(_text(self.events).encode()).hexdigest()


def account(events: Iterable[Event], size: Size = lambda nbytes: nbytes) -> Account:
    """Play events with a counter in place of an allocator; `size` says what a block counts for.

    Raises DataError for a block that is allocated twice, or freed and not there.
    """
    held: dict[int, int] = {}
    now = peak = at_peak = allocations = 0
    for played, (block, nbytes) in enumerate(events, start=1):
        if nbytes < 0 or (nbytes > 0) == (block in held):
            what = f"allocates block {block} of {nbytes} bytes" if nbytes else f"frees block {block}"
            there = "is held already" if block in held else "is not held"
            raise DataError(f"event {played} of a trace {what}, which {there}")
        if nbytes:
            held[block] = size(nbytes)
            now += held[block]
            allocations += 1
        else:
            now -= held.pop(block)
        if now > peak:
            peak, at_peak = now, played
    return Account(peak, at_peak, allocations, tuple(held))


def whole(name: str, events: Iterable[Event]) -> Trace:
    """A trace of these events that at its end frees what they leave, latest first."""
    given = tuple(events)
    left = account(given).left
    return Trace(name, (*given, *(Event(block, 0) for block in reversed(left))))


def write(path: Path, trace: Trace) -> None:
    """Keep a trace as gzipped text: a line an event, `BLOCK NBYTES`. The same trace gives the same file."""
    path.write_bytes(gzip.compress(_text(trace.events).encode(), mtime=0))


def read(path: Path, name: str) -> Trace:
    """A trace from its file. Raises DataError for a file that holds none."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        if not lines:
            raise ValueError("it is empty")
        return whole(name, [Event(*map(int, line.split())) for line in lines])
    except (OSError, EOFError, ValueError, TypeError, DataError) as error:
        raise DataError(
            f"{path} is no trace of allocations: {error}; expected lines `BLOCK NBYTES`, gzipped"
        ) from None


def _text(events: Iterable[Event]) -> str:
    return "".join(f"{block} {nbytes}\n" for block, nbytes in events)
