"""More than two stacks in order in, their steps out: what each exchanges, and what each adds to the whole."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bench_lib.comparing import stats
from bench_lib.comparing.calibrate import aligned
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.compare import compare
from bench_lib.comparing.replicates import Replicates, replicates
from bench_lib.comparing.sides import Side
from bench_lib.comparing.stats import FEWEST
from bench_lib.errors import UsageError

_IN_ROUND = ["case_id", "round"]
_EXACT = 1e-9  # of a logarithm: more is not rounding


@dataclass(frozen=True)
class Ratio:
    """Candidate seconds / baseline seconds of one step, or of several together."""

    ratio: float
    low: float | None = None
    high: float | None = None
    change: Change | None = None  # of one case; a mean over cases has none


@dataclass(frozen=True)
class Line:
    """One case, or the geometric mean over several, taken apart into steps."""

    name: str
    cases: int
    steps: tuple[Ratio, ...]
    whole: Ratio  # first stack to last one, measured in the same campaign
    apart: Ratio | None = None  # the same, measured in another campaign
    differs: bool = False  # the two, by more than chance

    @property
    def product(self) -> float:
        """The product of the steps."""
        return math.prod(step.ratio for step in self.steps)


@dataclass(frozen=True)
class Bridge:
    """Stacks in order, each neighbouring pair a step."""

    stacks: tuple[str, ...]
    campaign: str
    steps: tuple[Comparison, ...]
    whole: Comparison
    means: tuple[Line, ...]  # over all cases; then, of several families, over each
    lines: tuple[Line, ...]  # a case each, from the largest gain to the largest loss of the whole
    apart: Comparison | None = None
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the steps multiply to the whole by construction: all from the same runs."""
        return all(abs(math.log(line.product / line.whole.ratio)) < _EXACT for line in self.lines)

    @property
    def differing(self) -> int:
        """Cases whose whole another campaign measured differently, by more than chance."""
        return sum(line.differs for line in self.lines)


def bridge(sides: Sequence[Side], apart: tuple[Side, Side] | None = None) -> Bridge:
    """The steps between neighbouring sides, and the way from the first to the last.

    Of each case only the rounds count that hold it on every side, so that the steps multiply to the
    whole. `apart` is the first and the last stack as another campaign measured them: the one check
    there is. Raises UsageError for fewer than three sides.
    """
    if len(sides) < 3:
        raise UsageError(f"a bridge needs three stacks or more, {len(sides)} given")
    if apart and {*_runs(apart)} & {*_runs(sides)}:
        raise UsageError(f"{apart[0].campaign!r} holds the runs of the bridge; a check needs other ones")
    values, left_out = _in_common([replicates(side.data) for side in sides])
    # The repeat of the first stack is quoted with the whole, and once is enough.
    bare = [replace(side, repeat=None) for side in sides]
    steps = tuple(compare(bare[i], bare[i + 1], (values[i], values[i + 1])) for i in range(len(sides) - 1))
    whole = compare(sides[0], sides[-1], (values[0], values[-1]))
    check = compare(*apart) if apart else None
    rows = _whole_rows(steps, whole)
    checked = {row.case_id: row for row in check.cases if row.ratio} if check else {}
    return Bridge(
        stacks=tuple(side.label for side in sides),
        campaign=" / ".join(dict.fromkeys(side.campaign for side in sides)),
        steps=steps,
        whole=whole,
        means=_means(rows),
        lines=tuple(_line(row, checked.get(row[-1].case_id)) for row in rows),
        apart=check,
        left_out=(*left_out, *_partly(whole, steps, rows)),
    )


def exchanged(step: Comparison) -> str:
    """What a step exchanges: `cudart 11.8 -> 12.4`, or the names of several components."""
    parts = [one for one in step.differences if one.axis in ("stack", "driver")]
    if len(parts) == 1:
        return f"{parts[0].component} {parts[0].baseline} -> {parts[0].candidate}"
    return ", ".join(one.component for one in parts) or "nothing"


def _in_common(found: Sequence[Replicates]) -> tuple[list[Replicates], list[tuple[str, str]]]:
    """The values of every side without those whose round lacks that case on another side."""
    in_rounds = [of.values.loc[of.values["round"] != "", _IN_ROUND] for of in found]
    held = [set(map(tuple, names.to_numpy())) for names in in_rounds]
    common = set.intersection(*held)
    cases = {case for case, _ in common}
    dropped = {name for name in set.union(*held) - common if name[0] in cases}
    why = "left out of every step, one of the stacks lacks it there; rounds:"
    rounds = pd.Series([case for case, _ in dropped], dtype=str).value_counts().sort_index()
    return [_without(of, dropped) for of in found], [(str(case), f"{why} {n}") for case, n in rounds.items()]


def _without(found: Replicates, dropped: set[tuple[str, str]]) -> Replicates:
    if not dropped:
        return found
    gone = [tuple(name) in dropped for name in found.values[_IN_ROUND].to_numpy()]
    return replace(found, values=found.values[~np.array(gone)].reset_index(drop=True))


def _runs(sides: Iterable[Side]) -> Iterable[str]:
    return (str(run) for side in sides for run in side.data.runs["run_id"])


def _whole_rows(steps: Sequence[Comparison], whole: Comparison) -> list[list[CaseChange]]:
    """The cases that have a ratio in every step and as a whole, which comes last."""
    found = [{row.case_id: row for row in one.cases if row.ratio} for one in (*steps, whole)]
    return [[of[name] for of in found] for name in found[-1] if all(name in of for of in found)]


def _partly(
    whole: Comparison, steps: Sequence[Comparison], rows: Sequence[Sequence[CaseChange]]
) -> list[tuple[str, str]]:
    there = {row[-1].case_id for row in rows}
    every = dict.fromkeys(row.case_id for one in (whole, *steps) for row in one.cases)
    return [(name, "has no ratio in one of the steps") for name in every if name not in there]


def _line(row: Sequence[CaseChange], apart: CaseChange | None) -> Line:
    *steps, whole = map(_ratio, row)
    name = row[-1].case_id
    if apart is None:
        return Line(name, 1, tuple(steps), whole)
    return Line(name, 1, tuple(steps), whole, _ratio(apart), _differ(row[-1], apart))


def _ratio(row: CaseChange) -> Ratio:
    return Ratio(row.ratio or 1.0, row.low, row.high, row.change)


def _differ(here: CaseChange, apart: CaseChange) -> bool:
    """Whether two campaigns disagree on a case: Welch's t on the log ratios of their pairs."""
    if min(len(here.log_ratios), len(apart.log_ratios)) < FEWEST:
        return False
    floor = np.array([max(here.floor, apart.floor)])
    a, b = (np.array([row.log_ratios]) for row in (here, apart))
    return bool(stats.unpaired(a, b, floor).differs()[0])


def _means(rows: Sequence[Sequence[CaseChange]]) -> tuple[Line, ...]:
    families = sorted({row[-1].family for row in rows})
    groups = {f"all {len(rows)} cases": list(rows)} if rows else {}
    if len(families) > 1:
        groups |= {name: [row for row in rows if row[-1].family == name] for name in families}
    found = []
    for name, members in groups.items():
        *steps, whole = (_mean(column) for column in zip(*members, strict=True))
        found.append(Line(name, len(members), tuple(steps), whole))
    return tuple(found)


def _mean(rows: Sequence[CaseChange]) -> Ratio:
    """The geometric mean over cases, with the t interval of its values pair by pair.

    Cases share their runs, so the pairs are the replicates, never the cases. A case that lacks a pair
    counts there with its own mean.
    """
    mean = float(np.mean([math.log(row.ratio or 1.0) for row in rows]))
    if not all(row.log_ratios for row in rows):
        return Ratio(math.exp(mean))
    log_ratios, _ = aligned(rows)
    apart = log_ratios - np.nanmean(log_ratios, axis=1, keepdims=True)
    by_pair = np.where(np.isfinite(apart), apart, 0.0).mean(axis=0) + mean
    effects = stats.paired(by_pair[None, :], np.zeros(1))
    if effects.n[0] < FEWEST:
        return Ratio(math.exp(mean))
    low, high = effects.interval()
    return Ratio(math.exp(mean), float(low[0]), float(high[0]))
