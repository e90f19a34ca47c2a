"""One measured figure beside its target, and how a duration is taken here."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """What was measured, in words; the number, the most it may be, and how both are shown."""

    what: str
    value: float
    most: float
    form: Callable[[float], str]

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.value <= self.most


@dataclass(frozen=True)
class Part:
    """A section of the page: what its figures mean, the figures, and what stands behind them."""

    title: str
    says: str
    figures: tuple[Figure, ...]
    more: tuple[str, ...] = ()


def seconds(fn: Callable[[], Any]) -> float:
    """Wall seconds of one call."""
    begin = time.perf_counter()
    fn()
    return time.perf_counter() - begin


def nanoseconds(value: float) -> str:
    """`2.1 ns`."""
    return f"{value * 1e9:.1f} ns"


def microseconds(value: float) -> str:
    """`2.1 µs`."""
    return f"{value * 1e6:.1f} µs"


def milliseconds(value: float) -> str:
    """`2.1 ms`."""
    return f"{value * 1e3:.1f} ms"


def in_seconds(value: float) -> str:
    """`2.1 s`."""
    return f"{value:.2g} s" if value < 1 else f"{value:.1f} s"


def times(value: float) -> str:
    """`2.1 times`."""
    return f"{value:.2g} times" if value < 1 else f"{value:.1f} times"


def percent(value: float) -> str:
    """`2.1 %`."""
    return f"{100 * value:.2g} %"


def megabytes(value: float) -> str:
    """`210 MB`."""
    return f"{value / 1e6:.0f} MB"
