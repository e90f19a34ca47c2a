"""Cases by family in, a table of their changes out; and what the charts of a subject stand under."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench_lib.comparing.changes import CaseChange, Change
from bench_lib.drawing.gallery import FAMILIES_OF
from bench_lib.pages.page import Code, Inline, Number, Place, Section, Table
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


def with_counts(
    subjects: Iterable[Section], rows: Sequence[CaseChange]
) -> tuple[list[Section], list[Section]]:
    """The sections of charts, each opened by how the compared cases of its families came out.

    First those that are about the comparison; then what else the campaign holds.
    """
    ours, others = [], []
    for section in subjects:
        if opening := _opening(FAMILIES_OF.get(str(section.title), ()), rows):
            ours.append(Section(section.title, (*opening, *section.blocks)))
        else:
            told = "Measured in the same campaign; not part of this comparison."
            others.append(Section(section.title, (told, *section.blocks), Place.APPENDIX))
    return ours, others


def _opening(families: Sequence[str], rows: Sequence[CaseChange]) -> list[Inline]:
    opening: list[Inline] = []
    for family in families:
        if counts := Counter(row.change for row in rows if row.family == family):
            told = ", ".join(f"{counts[change]} {change}" for change in Change if counts[change])
            opening.append((Code(family), f" ({FAMILIES.get(family, 'cases')}): {told}."))
    return opening
