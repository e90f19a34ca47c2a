"""Bandwidths of a collective as nccl-tests defines them, from its size, its time and the number of ranks.

Source: nccl-tests, doc/PERFORMANCE.md. The size is that of the whole operation: what one rank holds at
the end of an all-gather, what it begins a reduce-scatter with.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

Factor = Callable[[int], float]


def _shared(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _whole(_: int) -> float:
    return 1.0


FACTORS: Mapping[str, Factor] = MappingProxyType(
    {
        "all_reduce": _twice,
        "reduce_scatter": _shared,
        "all_gather": _shared,
        "alltoall": _shared,
        "gather": _shared,
        "scatter": _shared,
        "broadcast": _whole,
        "reduce": _whole,
        "sendrecv": _whole,
    }
)


def factor(op: str, ranks: int) -> float | None:
    """What algbw is multiplied by for busbw; None for one rank, between which nothing moves, and for
    an operation that has none.
    """
    known = FACTORS.get(op)
    return None if known is None or ranks < 2 else known(ranks)


def algbw(nbytes: float, seconds: float) -> float:
    """The bytes of the operation in a second."""
    return nbytes / seconds


def busbw(op: str, nbytes: float, seconds: float, ranks: int) -> float | None:
    """Bytes a second over the busiest link, whatever the number of ranks; None where `factor` is."""
    scale = factor(op, ranks)
    return None if scale is None else algbw(nbytes, seconds) * scale
