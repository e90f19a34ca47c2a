"""Names of cases in, shorter ones for a chart out: nothing by which two of them differ is lost."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bench_lib.drawing.canvas import shown
from bench_lib.units import nbytes_text

_NBYTES = re.compile(r"\bnbytes=(\d+)\b")
LINE = 76  # letters that are read at a glance; longer names are shortened, then broken into two lines


class Labels(NamedTuple):
    """A label a name, and what was left out of each of them: the parameters that all of them share."""

    labels: list[str]
    shared: str = ""


def in_units(name: str) -> str:
    """The name with `nbytes=67108864` as `nbytes=64 MiB`, where that says the same."""
    return _NBYTES.sub(_with_unit, name)


def _with_unit(found: re.Match[str]) -> str:
    nbytes = int(found[1])
    power = next((power for power in (3, 2, 1) if nbytes and nbytes % 1024**power == 0), 0)
    return f"nbytes={nbytes_text(nbytes)}" if power and nbytes // 1024**power < 1024 else found[0]


def labels(names: Sequence[str]) -> Labels:
    """Labels of one line or two. Where a name is long, what is equal in all of them is said once."""
    names = [in_units(name) for name in names]
    if max(map(len, names), default=0) <= LINE or len(names) < 2:
        return Labels([_lines(name) for name in names])
    parts = [_parts(name)[1] for name in names]
    shared = [part for part in parts[0] if all(part in others for others in parts)]
    return Labels([_lines(_without(name, shared)) for name in names], ", ".join(shared))


def _parts(name: str) -> tuple[str, list[str]]:
    """What stands before the parameters, and each of them as `key=value`."""
    head, bracket, inner = name.partition("[")
    return head, inner.removesuffix("]").split(",") if bracket else []


def _without(name: str, shared: Sequence[str]) -> str:
    head, parts = _parts(name)
    kept = [part for part in parts if part not in shared]
    return f"{head}[{','.join(kept)}]" if kept else head


def _lines(name: str) -> str:
    """The name in two lines of about one length where it is long, broken between two parameters."""
    text = shown(name, 2 * LINE)
    if len(text) <= LINE:
        return text
    ends = [i + 1 for i, letter in enumerate(text) if letter in ",["]
    middle = min(ends, key=lambda end: abs(end - len(text) / 2), default=LINE)
    return f"{text[:middle]}\n    {text[middle:]}"
