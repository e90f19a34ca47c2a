"""Quantities, versions and names as text a person reads. Everywhere else times are float seconds."""

from collections.abc import Iterable, Sequence

MIB, GIB = 1 << 20, 1 << 30

_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds_text(seconds: float) -> str:
    """A time with four digits and the unit that suits it: `3.102 µs`."""
    factor, unit = next((step for step in _STEPS if abs(seconds) >= step[0]), _STEPS[-1])
    return f"{seconds / factor:.4g} {unit}"


def duration_text(seconds: float) -> str:
    """How long something takes, roughly: `40 s`, `14 min`, `2.5 h`, `3 days`."""
    if seconds < 120:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.2g} h" if hours < 48 else f"{hours / 24:.0f} days"


def quantity_text(value: float) -> str:
    """A quantity that is not a time, with four digits; its unit is in its name."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def nbytes_text(nbytes: float) -> str:
    """A number of bytes with four digits and the unit that suits it: `1.465 GiB`."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.4g} {unit}"
    return f"{nbytes:.4g} B"


def percent_text(share: float) -> str:
    """A share as percent with two digits, never with an exponent; above 1000 % its size says nothing."""
    percent = 100 * share
    if percent > 1000:
        return "> 1000 %"
    return f"{percent:.2g} %" if percent < 99 else f"{percent:.0f} %"


def ends_text(texts: Iterable[str]) -> str:
    """A range by its two ends: `1.03 to 2.00`; one of them where both read alike."""
    return " to ".join(dict.fromkeys(texts))


def count_text(n: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{n} {noun}{'s' * (n != 1)}"


def names_text(names: Sequence[str], most: int, between: str = ", ") -> str:
    """The first names, and how many more there are: `a, b, c and 5 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def cuda_version_text(code: int) -> str:
    """A version as CUDA codes it: 12040 is 12.4."""
    return f"{code // 1000}.{code % 1000 // 10}"


def nccl_version_text(code: int) -> str:
    """A version as NCCL codes it: 22105 is 2.21.5, and 2804, before 2.9, 2.8.4."""
    return _in_three(code, 10000 if code >= 10000 else 1000)


def cudnn_version_text(code: int) -> str:
    """A version as cuDNN codes it: 90100 is 9.1.0, and 8907, before 9, 8.9.7."""
    return _in_three(code, 10000 if code >= 90000 else 1000)


def _in_three(code: int, major: int) -> str:
    return f"{code // major}.{code % major // 100}.{code % 100}"
