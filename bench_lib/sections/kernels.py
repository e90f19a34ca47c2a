"""Cases whose implementation changed from one side to the other, each with what ran on both."""

from collections.abc import Iterator

import pandas as pd

from bench_lib.comparing.changes import CaseChange, Comparison
from bench_lib.comparing.implementations import Ran, ran
from bench_lib.comparing.store import Data
from bench_lib.comparing.verdicts import Pairing
from bench_lib.drawing import charts
from bench_lib.model import Case
from bench_lib.pages.page import Code, Inline, Mark, Section, Table
from bench_lib.pages.render import change_text


def changed(comparison: Comparison, data: Data) -> Section | None:
    """The cases that ran other kernels, or another algorithm, on the two sides; None where none did."""
    before, after = (ran(cases) for cases in _sides(comparison, data.cases))
    rows = tuple(row for case in comparison.cases for row in _rows(comparison, case, before, after))
    if not rows:
        return None
    number = len({row[0] for row in rows})
    says = f"{number} of {len(comparison.cases)} cases ran something else on the candidate's side."
    head = ("case", "change", "what", "baseline", "candidate")
    return Section("Changed kernels", (says, Table(head, rows, "kernels")))


def _sides(comparison: Comparison, cases: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of both sides; of a contrast both are in all runs, and the case tells them apart."""
    if comparison.pairing == Pairing.RUNS:
        return cases, cases
    sides = list(charts.by_side(cases, comparison.baseline).values())
    return (sides[0], pd.concat(sides[1:])) if len(sides) > 1 else (cases.iloc[:0], cases.iloc[:0])


def _rows(comparison: Comparison, row: CaseChange, before: Ran, after: Ran) -> Iterator[tuple[Inline, ...]]:
    names = [_measured_as(comparison, row, side) for side in (comparison.baseline, comparison.candidate)]
    one, other = before.get(names[0], {}), after.get(names[1], {})
    for what in sorted(one.keys() & other.keys()):
        if not one[what].keys() & other[what].keys():  # a choice may vary from run to run by itself
            shown = (Code(" / ".join(sorted(side[what]))) for side in (one, other))
            yield (Code(row.case_id), Mark(change_text(row), row.change), what, *shown)


def _measured_as(comparison: Comparison, row: CaseChange, side: str) -> str:
    """The case as it is called in the results: of a contrast, with the parameter at the side's value."""
    if comparison.pairing != Pairing.RUNS:
        return row.case_id
    name, _, value = side.partition("=")
    return Case(row.family, row.op, {**row.params, name: value}).case_id
