"""Cases by family in, a table of their changes out; and what the charts of a subject stand under."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench_lib.drawing.gallery import FAMILIES_OF
from bench_lib.model import CaseChange, Change
from bench_lib.pages.page import Code, Inline, Number, Section, Table
from bench_lib.sections.metrics import FAMILIES


def overview(rows: Sequence[CaseChange]) -> Section | None:
    """A row a family: what it asks and how many of its cases came out how; None for fewer than two."""
    families = sorted({row.family for row in rows})
    if len(families) < 2:
        return None
    head = ("family", "asks", *map(str, Change))
    body = tuple(_row(family, [row for row in rows if row.family == family]) for family in families)
    return Section("By family", (Table(head, body),))


def _row(family: str, rows: Sequence[CaseChange]) -> tuple[Inline, ...]:
    counts = Counter(row.change for row in rows)
    return (
        Code(family),
        FAMILIES.get(family, ""),
        *(Number(str(counts[change]), counts[change]) for change in Change),
    )


def with_counts(subjects: Iterable[Section], rows: Sequence[CaseChange]) -> list[Section]:
    """The sections of charts, each opened by how the compared cases of its families came out."""
    return [
        Section(section.title, (*_opening(FAMILIES_OF.get(str(section.title), ()), rows), *section.blocks))
        for section in subjects
    ]


def _opening(families: Sequence[str], rows: Sequence[CaseChange]) -> Iterable[Inline]:
    there = {family: Counter(row.change for row in rows if row.family == family) for family in families}
    for family, counts in there.items():
        if counts:
            told = ", ".join(f"{counts[change]} {change}" for change in Change if counts[change])
            yield (Code(family), f" ({FAMILIES.get(family, 'cases')}): {told}.")
    if not any(there.values()):
        yield "Not in this comparison; the charts show all that the campaign holds of it."
