"""Case changes in, the tables of them out: the cases themselves, memory, and other quantities."""

from collections.abc import Callable, Sequence

from bench_lib.comparing.changes import CaseChange, Change
from bench_lib.comparing.replicates import SECONDS
from bench_lib.drawing.canvas import interval_text
from bench_lib.pages.page import Code, Inline, Mark, Number, Section, Table
from bench_lib.pages.render import change_text, speed_up
from bench_lib.sections.metrics import quantity_meaning
from bench_lib.units import nbytes_text, quantity_text, seconds_text

_NUMBERS = ("baseline", "candidate", "ratio [95 % interval]")
_JUDGED = ("change", "n", "why", "next step")
_MEMORY = "_nbytes"  # how a quantity ends that counts bytes


def cases(rows: Sequence[CaseChange]) -> Section | None:
    """The table of cases, from the largest gain to the largest loss; None where there are none."""
    head = ("case", *_NUMBERS, "speed-up", *_JUDGED)
    body = ((Code(row.case_id), *_numbers(row), _speed(row), *_judged(row)) for row in rows)
    return Section("Cases", ("Sorted by effect.", Table(head, tuple(body), "cases"))) if rows else None


def memory(rows: Sequence[CaseChange]) -> Section | None:
    """What became of the bytes that the cases held; None where none were counted."""
    ours = [row for row in rows if row.unit.endswith(_MEMORY)]
    return _quantities("Memory", "Numbers of bytes", "memory", ours)


def quantities(rows: Sequence[CaseChange]) -> Section | None:
    """Every other number that is not a time; None where there are none."""
    others = [row for row in rows if not row.unit.endswith(_MEMORY)]
    return _quantities("Quantities", "Numbers that are not times", "quantities", others)


def _quantities(title: str, what: str, name: str, rows: Sequence[CaseChange]) -> Section | None:
    if not rows:
        return None
    lower, higher = (sum(row.change is change for row in rows) for change in (Change.FASTER, Change.SLOWER))
    says = f"{what}: {lower} lower and {higher} higher by more than the margin, of {len(rows)} in all; "
    meanings = "; ".join(f"{unit}: {quantity_meaning(unit)}" for unit in sorted({row.unit for row in rows}))
    head = ("case", "quantity", *_NUMBERS, *_JUDGED)
    body = tuple((Code(row.case_id), row.unit, *_numbers(row), *_judged(row)) for row in rows)
    return Section(title, (f"{says}they are not counted above.", f"{meanings}.", Table(head, body, name)))


def _numbers(row: CaseChange) -> tuple[Inline, ...]:
    shown = _shown(row)
    sides = ("" if value is None else Number(shown(value), value) for value in (row.baseline, row.candidate))
    return (*sides, Number(interval_text(row), row.ratio))


def _shown(row: CaseChange) -> Callable[[float], str]:
    """How the numbers of a row are written."""
    if row.unit == SECONDS or row.unit.endswith("_seconds"):
        return seconds_text
    return nbytes_text if row.unit.endswith(_MEMORY) else quantity_text


def _speed(row: CaseChange) -> Inline:
    speed = speed_up(row)
    return Number(f"{speed:.3f}x", speed) if speed else ""


def _judged(row: CaseChange) -> tuple[Inline, ...]:
    return (Mark(change_text(row), row.change), Number(str(row.n), row.n), row.reason, row.next_step)
