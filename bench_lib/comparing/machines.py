"""Case changes in, out where machines of one GPU model differ in them: no mean over both is either's.

A case's pairs are taken apart by the machine they ran on, and each two machines are compared as two
independent sets of ratios, by the same test beyond the margin as the cases themselves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd

from bench_lib.comparing import stats
from bench_lib.comparing.case_words import case_text
from bench_lib.comparing.changes import MOVED, CaseChange, Comparison, MachineSpread
from bench_lib.comparing.kinds import is_whole
from bench_lib.comparing.stats import FEWEST, Floats
from bench_lib.comparing.verdicts import Pairing, effect_text


@dataclass(frozen=True)
class _Two:
    """A case on two machines: the log ratios of its pairs on each."""

    row: CaseChange
    low: tuple[float, ...]  # of the machine that gains more
    high: tuple[float, ...]

    @property
    def apart(self) -> float:
        """How far the means lie apart."""
        return float(np.mean(self.high) - np.mean(self.low))


def spreads(rows: Sequence[CaseChange], runs: pd.DataFrame) -> tuple[MachineSpread, ...]:
    """The cases whose ratio differs between machines by more than the margin, the widest first.

    Whole steps come before their parts. A machine needs `FEWEST` pairs of a case to count; the false
    discovery rate is controlled over all cases and pairs of machines.
    """
    machine = _machines(runs)
    if len(set(machine.values())) < 2:
        return ()
    twos = [two for row in rows for two in _twos(row, machine)]
    if not twos:
        return ()
    floors, margins = (np.array([getattr(two.row, name) for two in twos]) for name in ("floor", "margin"))
    effects = stats.unpaired(_matrix(two.low for two in twos), _matrix(two.high for two in twos), floors)
    changes = stats.decide(effects, margins).change
    apart = [two for two, change in zip(twos, changes, strict=True) if change in MOVED]
    widest: dict[str, _Two] = {}
    for two in sorted(apart, key=lambda two: (not is_whole(two.row), -two.apart)):
        widest.setdefault(two.row.case_id, two)
    return tuple(_spread(two) for two in widest.values())


def told(rows: Sequence[CaseChange], found: Iterable[MachineSpread]) -> tuple[CaseChange, ...]:
    """The rows, those whose machines differ with a reason and a next step that say so."""
    by_case = {one.case_id: one for one in found}
    return tuple(
        replace(
            row,
            reason=f"{row.reason}; the machines differ: {_both(row, by_case[row.case_id])}",
            next_step="take each machine by itself: a mean over them is that of none",
            lacking=0,
        )
        if row.case_id in by_case
        else row
        for row in rows
    )


def sentence(comparison: Comparison) -> str:
    """That machines differ, by the case in which it matters most, in one sentence; "" where none does."""
    found, rows = comparison.machines_differ, comparison.cases
    if not found:
        return ""
    row = next(row for row in rows if row.case_id == found[0].case_id)
    unit = "round" if comparison.pairing == Pairing.ROUNDS else "run"
    others = len(found) - 1
    more = f"; {others} more case{'s differ' if others > 1 else ' differs'} as well" if others else ""
    return f"The machines differ: {case_text(row, rows)} takes {_both(row, found[0], f' {unit}s')}{more}."


def _both(row: CaseChange, spread: MachineSpread, unit: str = "") -> str:
    """`26 % less time on one (5 runs) and 11 % less time on another (5 runs)`."""
    low, high = (effect_text(replace(row, ratio=ratio)) for ratio in (spread.low, spread.high))
    n = "" if unit else "n is "
    return f"{low} on one ({n}{spread.low_n}{unit}) and {high} on another ({n}{spread.high_n}{unit})"


def of_runs(runs: pd.DataFrame) -> dict[str, str]:
    """By run the machine it ran on: its GPU, else the boot; "" where neither is known."""
    known = runs[["run_id", "gpu_uuid", "boot_id"]].itertuples(index=False)
    return {str(run): str(gpu or boot) for run, gpu, boot in known}


def _machines(runs: pd.DataFrame) -> dict[str, str]:
    """By run, and by round whose runs share one machine, the machine."""
    found = of_runs(runs)
    several = set()
    for run, name in runs[["run_id", "round"]].itertuples(index=False):
        place = found[str(run)]
        if name and found.setdefault(str(name), place) != place:
            several.add(str(name))
    return {name: place for name, place in found.items() if place and name not in several}


def _twos(row: CaseChange, machine: dict[str, str]) -> Iterable[_Two]:
    by_machine: dict[str, list[float]] = {}
    for pair, log_ratio in zip(row.pairs, row.log_ratios, strict=False):
        if pair in machine:
            by_machine.setdefault(machine[pair], []).append(log_ratio)
    enough = sorted((tuple(one) for one in by_machine.values() if len(one) >= FEWEST), key=np.mean)
    for low, high in combinations(enough, 2):
        yield _Two(row, low, high)


def _spread(two: _Two) -> MachineSpread:
    low, high = (float(np.exp(np.mean(one))) for one in (two.low, two.high))
    return MachineSpread(two.row.case_id, low, len(two.low), high, len(two.high))


def _matrix(values: Iterable[Sequence[float]]) -> Floats:
    """Rows of unequal length as one array, filled up with NaN."""
    rows = list(values)
    matrix = np.full((len(rows), max(map(len, rows))), np.nan)
    for row, found in zip(matrix, rows, strict=True):
        row[: len(found)] = found
    return matrix
