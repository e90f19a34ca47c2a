"""Rows of a comparison in, case changes out: the numbers of `stats` and the sentences to them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import Any

import numpy as np

from bench_lib.comparing import stats
from bench_lib.comparing.changes import MOVED, CaseChange, Change
from bench_lib.comparing.matching import Row
from bench_lib.comparing.replicates import SECONDS
from bench_lib.comparing.stats import FEWEST, MOST_MORE, MOST_ROUNDS, Effects, Floats
from bench_lib.model import CANARY
from bench_lib.units import percent_text

NOT_INTERLEAVED = "not interleaved: confounded with the session"
SETTLED = "none: settled"
_INTERLEAVE = "measure both in interleaved rounds to tell the stack from the session"


class Pairing(StrEnum):
    """What the replicates of a comparison are."""

    ROUNDS = "rounds"
    RUNS = "runs"  # of a contrast: both values inside each run
    INSTALLATIONS = "installations"  # of two drivers that alternated: neighbours are a pair
    UNPAIRED = "unpaired"


@dataclass(frozen=True)
class Groups:
    """Case changes by what they are for; each group is tested on its own."""

    canaries: tuple[CaseChange, ...]
    cases: tuple[CaseChange, ...]
    quantities: tuple[CaseChange, ...]

    @property
    def moved(self) -> tuple[CaseChange, ...]:
        """The canaries that moved beyond their margin: the machine changed between the sides."""
        return tuple(row for row in self.canaries if row.change in MOVED)

    @property
    def changed(self) -> bool:
        """Whether any of them changed beyond its margin."""
        return any(row.change in MOVED for row in (*self.canaries, *self.cases, *self.quantities))


def grouped(rows: Sequence[Row], pairing: Pairing) -> Groups:
    """All rows of a comparison as case changes: canaries, cases, and quantities apart."""
    times = [row for row in rows if row.unit == SECONDS]
    return Groups(
        changes([row for row in times if row.family == CANARY], pairing),
        changes([row for row in times if row.family != CANARY], pairing),
        changes([row for row in rows if row.unit != SECONDS], pairing),
    )


def changes(rows: Sequence[Row], pairing: Pairing) -> tuple[CaseChange, ...]:
    """Rows that are tested together, from the largest gain to the largest loss; then those without a ratio.

    The false discovery rate is controlled over exactly these rows.
    """
    judged = [row for row in rows if row.values.baseline and not row.not_comparable]
    others = [_without_values(row, pairing) for row in rows if row.not_comparable or not row.values.baseline]
    found = _judged(judged, pairing) if judged else []
    return (*sorted(found, key=lambda change: change.ratio or 0.0), *others)


def _judged(rows: list[Row], pairing: Pairing) -> list[CaseChange]:
    floors = _floors(rows)
    effects = _effects(rows, pairing, floors)
    decisions = stats.decide(effects, np.array([row.margin for row in rows]))
    lows, highs = effects.interval()
    found = []
    for i, row in enumerate(rows):
        n = int(effects.n[i])
        numbers: dict[str, Any] = {}
        if n >= FEWEST:
            q_change, q_same = float(decisions.q_change[i]), float(decisions.q_same[i])
            numbers = {"low": float(lows[i]), "high": float(highs[i]), "q_change": q_change, "q_same": q_same}
        change = CaseChange(
            **_question(row),
            change=decisions.change[i],
            reason="",
            n=n,
            baseline=_geometric_mean(row.values.baseline),
            candidate=_geometric_mean(row.values.candidate),
            ratio=float(np.exp(effects.mean[i])),
            sd=float(effects.sd[i]) if n > 1 else None,
            floor=float(floors[i]),
            log_ratios=row.values.log_ratios,
            pairs=row.values.pairs,
            **numbers,
        )
        reason = _reason(change) + _missing(row, pairing) + _session(pairing) + _within_turns(change, pairing)
        rounds = int(decisions.rounds[i])
        step, lacking = _next_step(change, rounds, pairing), _lacking(change, rounds)
        found.append(replace(change, reason=reason, next_step=step, lacking=lacking))
    return found


def _floors(rows: list[Row]) -> Floats:
    step = np.array([row.step for row in rows])
    value = np.array([median([*row.values.baseline, *row.values.candidate]) for row in rows])
    return stats.spread_floor(step, value)


def _effects(rows: list[Row], pairing: Pairing, floor: Floats) -> Effects:
    if pairing is not Pairing.UNPAIRED:
        return stats.paired(_matrix([row.values.log_ratios for row in rows]), floor)
    baseline = np.log(_matrix([row.values.baseline for row in rows]))
    candidate = np.log(_matrix([row.values.candidate for row in rows]))
    return stats.unpaired(baseline, candidate, floor)


def _matrix(values: Sequence[Sequence[float]]) -> Floats:
    """Rows of unequal length as one array, filled up with NaN."""
    matrix = np.full((len(values), max(map(len, values))), np.nan)
    for row, found in zip(matrix, values, strict=True):
        row[: len(found)] = found
    return matrix


def _geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _question(row: Row) -> dict[str, Any]:
    names = ("case_id", "family", "op", "params", "metric", "margin", "unit")
    return {name: getattr(row, name) for name in names}


def _without_values(row: Row, pairing: Pairing) -> CaseChange:
    if row.not_comparable:
        change, reason = Change.NOT_COMPARABLE, row.not_comparable
        return CaseChange(
            **_question(row), change=change, reason=reason, next_step=row.next_step, failed=row.failed
        )
    reason = f"no {_replicates(pairing, 1)} holds a usable value of both sides" + _missing(row, pairing)
    next_step = at_least(FEWEST, pairing)
    return CaseChange(
        **_question(row), change=Change.UNCLEAR, reason=reason, next_step=next_step, lacking=FEWEST
    )


def _reason(change: CaseChange) -> str:
    """Why the change is what it is. `low` and `high` are there from `FEWEST` pairs on."""
    margin = f"the margin of {100 * change.margin:g} %"
    if change.low is None or change.high is None:
        return f"{effect_text(change)}; n is {change.n}, a verdict needs {FEWEST}"
    if change.change in (Change.FASTER, Change.SLOWER):
        return f"{effect_text(change)}, beyond {margin}"
    if change.change is Change.SAME:
        return f"{effect_text(change)}, within {margin}"
    bound = 1 + change.margin
    across = any(change.low < edge < change.high for edge in (1 / bound, bound))
    why = f"the interval reaches across {margin}" if across else "too little evidence among this many cases"
    if change.low <= 1 <= change.high:
        return f"{effect_text(change)}, {why}"
    words = (Change.FASTER, Change.SLOWER) if change.unit == SECONDS else ("lower", "higher")
    lean = words[change.high >= 1]
    return f"leans {lean}, size not resolved: {effect_text(change)}, {why}"


def effect_text(change: CaseChange) -> str:
    """The ratio in words: `2.9 % less time`; of a quantity, `2.9 % lower`."""
    less, more = ("less time", "more time") if change.unit == SECONDS else ("lower", "higher")
    ratio = change.ratio or 1.0
    if ratio > 2:
        times = f"{ratio:.3g}" if ratio < 1000 else f"{ratio:,.0f}"
        return f"{times} times the " + ("time" if change.unit == SECONDS else "value")
    percent = 100 * abs(1 - ratio)
    if 0 < percent < 0.01:
        return f"under 0.01 % {less if ratio < 1 else more}"
    return (
        f"{percent:.0f} % {less if ratio < 1 else more}"
        if percent >= 10
        else f"{percent:.2g} % {less if ratio < 1 else more}"
    )


def _lacking(change: CaseChange, rounds: int) -> int:
    """How many more replicates should settle a case; 0 where it is settled, or where none would."""
    if change.n < FEWEST:
        return FEWEST - change.n
    lacking = max(rounds - change.n, 1)
    return lacking if change.change is Change.UNCLEAR and lacking <= MOST_MORE else 0


def _next_step(change: CaseChange, rounds: int, pairing: Pairing) -> str:
    if change.n < FEWEST:
        return at_least(FEWEST - change.n, pairing)
    if change.change is not Change.UNCLEAR:
        return _INTERLEAVE if pairing is Pairing.UNPAIRED else SETTLED
    if lacking := _lacking(change, rounds):
        told = f"about {more(lacking, pairing)} should settle"
        return (
            f"{told} its size, not its cause: {_INTERLEAVE}" if pairing is Pairing.UNPAIRED else f"{told} it"
        )
    about = "" if rounds > MOST_ROUNDS else f" ({max(rounds - change.n, 1)} would be needed)"
    return f"more {_replicates(pairing)} will hardly settle it{about}: {_hopeless(change)}"


def _hopeless(change: CaseChange) -> str:
    """Why no number of replicates helps: an effect known to lie at the margin, or scatter that hides it."""
    margin, half = np.log1p(change.margin), np.log((change.high or 1.0) / (change.low or 1.0)) / 2
    if half <= margin:
        return "the effect lies at the margin"
    scatter = percent_text(np.expm1(change.sd or half))
    return f"its values scatter by {scatter}, find what disturbs them first"


def at_least(n: int, pairing: Pairing) -> str:
    """Rounds that gave no value are in: the same command measures none until it asks for more."""
    raised = "" if pairing is Pairing.INSTALLATIONS else f" (cuda-gains run: raise --rounds by {n})"
    return f"measure at least {more(n, pairing)}{raised}"


def more(n: int, pairing: Pairing) -> str:
    """`1 more round`, `7 more runs on each side`."""
    return f"{n} more {_replicates(pairing, n)}" + " on each side" * (pairing is Pairing.UNPAIRED)


def _missing(row: Row, pairing: Pairing) -> str:
    if not row.without_pair:
        return ""
    return f"; {row.without_pair} {_replicates(pairing, row.without_pair)} gave no pair"


def _session(pairing: Pairing) -> str:
    return f"; {NOT_INTERLEAVED}" if pairing is Pairing.UNPAIRED else ""


def _within_turns(change: CaseChange, pairing: Pairing) -> str:
    """What to add where the columns of a contrast divide to another number than the ratio; "" elsewhere.

    Only series that were measured in turns do: all other pairs have the ratio of their values.
    """
    if pairing is not Pairing.RUNS or not (change.ratio and change.baseline and change.candidate):
        return ""
    quotient = change.candidate / change.baseline
    if math.isclose(quotient, change.ratio, rel_tol=1e-9):
        return ""
    outside = change.low is not None and change.high is not None and not change.low <= quotient <= change.high
    if not outside and abs(np.log(quotient / change.ratio)) <= np.log1p(change.margin):
        return ""
    return f"; the ratio is taken within turns, not of the two columns (those divide to {quotient:.3f})"


def _replicates(pairing: Pairing, n: int = 0) -> str:
    """The word for n replicates of this pairing."""
    if pairing is Pairing.INSTALLATIONS:
        return "pair of installations" if n == 1 else "pairs of installations"
    return ("round" if pairing is Pairing.ROUNDS else "run") + "s" * (n != 1)
