"""Replicates of two sides in, one row a case out: its values, or why there is nothing to compare."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from bench_lib.comparing import pairing
from bench_lib.comparing.pairing import CASE, Case, LogRatio, Values
from bench_lib.comparing.replicates import (
    DOUBTED,
    SAME,
    SECONDS,
    Replicates,
    most_common,
    params_of,
    summed_up,
)
from bench_lib.model import BAD, Flag

REMEDIES = {  # by the flag that most samples of a case have
    Flag.PREEMPTED: "end the load that takes the cores away (other programs, too few cores)",
    Flag.THROTTLED: "find what slows the GPU down (heat, its power limit)",
    Flag.CLOCK_LOW: "find what keeps the GPU's clock low (heat, its power limit, locked clocks)",
    Flag.HOLD_TIMED_OUT: "end the load that keeps work from being queued in time",
}
NO_VALUES = Values((), ())


@dataclass(frozen=True)
class Row:
    """One case, or one quantity of one (`unit` is its name), with its values on both sides."""

    case_id: str
    unit: str
    family: str
    op: str
    params: dict[str, Any]
    metric: str
    margin: float
    step: float  # of the timer, per call
    values: Values = NO_VALUES
    without_pair: int = 0  # rounds (or runs) that hold the case and gave no pair
    not_comparable: str = ""  # why
    failed: str = ""  # the side on which it failed, where that is why
    next_step: str = ""


@dataclass(frozen=True)
class Matched:
    """The rows of a comparison, and (case, run or round, why) of what stayed out of it."""

    rows: tuple[Row, ...]
    left_out: tuple[tuple[str, str], ...]


def match(
    a: Replicates, b: Replicates, labels: tuple[str, str], on: str = "", log_ratio: LogRatio | None = None
) -> Matched:
    """Every case that has a value on either side.

    `on` is the column that pairs values (`round`, or `run_id` for a contrast); "" for sides that
    nothing pairs. `log_ratio`: see `pairing.in_pairs`.
    """
    left, right = pairing.with_key_ids(a.values, b.values)
    if on:
        together = pairing.in_pairs(left, right, on, labels, log_ratio)
        held = _rounds_held(a, b, on)
    else:
        together, held = pairing.side_by_side(left, right, labels), {}
    ways = [_ways(side, together.values) for side in (left, right)]
    measured = [set(side["case_id"].unique()) for side in (left, right)]
    rejected = (_by_case(a.rejected), _by_case(b.rejected))
    rows, left_out = [], list(together.left_out)
    for case, row in _heads(left, right).items():
        if case in together.values:
            rows.append(_with_values(row, together.values[case], held))
        elif case in ways[0] and case in ways[1]:
            rows.append(_without_pair(row, ways[0][case], ways[1][case], held))
        else:
            at = 1 if case in ways[0] else 0
            told = _on_one_side(row, rejected[at].get(row.case_id, ()), labels[at])
            rows += [told] if told.not_comparable else []
            if not told.not_comparable and (row.unit == SECONDS or row.case_id in measured[at]):
                left_out.append((row.case_id, told.next_step))
    return Matched(tuple(rows), (*left_out, *summed_up(a.rejected, b.rejected, labels)))


def _heads(left: pd.DataFrame, right: pd.DataFrame) -> dict[Case, Row]:
    """A row a case and unit, without values; margin and step are the larger of the two sides'."""
    names = [*CASE, "family", "op", "params", "metric", "margin", "step"]
    both = pd.concat([side[["number", *names]] for side in (left, right)], ignore_index=True)
    largest = both.groupby("number")[["margin", "step"]].max()
    first = both.drop_duplicates("number").drop(columns=largest.columns)
    heads = first.join(largest, on="number")
    rows = (
        Row(case_id, unit, family, op, params_of(params), metric, margin, step)
        for case_id, unit, family, op, params, metric, margin, step in heads[names].itertuples(index=False)
    )
    return {(row.case_id, row.unit): row for row in rows}


def other_margins(a: Replicates, b: Replicates) -> list[str]:
    """A note where cases were measured with several margins, of which the largest counts."""
    both = pd.concat([side.values[["case_id", "margin"]] for side in (a, b)]).drop_duplicates()
    if not both["case_id"].duplicated().any():
        return []
    ends = both.groupby("case_id")["margin"].agg(["min", "max"])
    several = ends[ends["min"] < ends["max"]]
    if several.empty:
        return []
    first = several.iloc[0]
    cases = "case was" if len(several) == 1 else "cases were"
    margins = f"{100 * first['min']:g} % and {100 * first['max']:g} %"
    return [
        f"{len(several)} {cases} measured with different margins ({several.index[0]}: {margins}); "
        "the larger one counts"
    ]


def _ways(values: pd.DataFrame, together: Collection[Case]) -> dict[Case, dict[int, dict[Any, Any]]]:
    """By case that is not together: each way in which it was measured, by the id of the way."""
    ways: dict[Case, dict[int, dict[Any, Any]]] = {}
    names = values[["number", "key", *CASE]].drop_duplicates(["number", "key"])
    cases = names[CASE].itertuples(index=False, name=None)
    apart = np.array([case not in together for case in cases], dtype=bool)
    for one in values.loc[names.index[apart], [*CASE, *SAME, "key"]].to_dict("records"):
        ways.setdefault((one["case_id"], one["unit"]), {})[one["key"]] = dict(one)
    return ways


def _rounds_held(a: Replicates, b: Replicates, on: str) -> dict[str, int]:
    """By case, how many rounds that both sides took part in hold it on either side."""
    seen = [[one[["case_id", on]] for one in (side.values, side.rejected)] for side in (a, b)]
    ours, theirs = (pd.concat(frames) for frames in seen)
    shared = set(ours[on].unique()) & set(theirs[on].unique()) - {""}
    there = pd.concat([ours, theirs]).drop_duplicates()
    times = there[there[on].isin(shared)]["case_id"].value_counts()
    return {str(case): int(n) for case, n in times.items()}


def _with_values(row: Row, values: Values, held: dict[str, int]) -> Row:
    missing = max(held.get(row.case_id, 0) - len(values.log_ratios), 0) if held else 0
    row = replace(row, values=values, without_pair=missing)
    unfit = sum(not 0 < value < math.inf for value in (*values.baseline, *values.candidate))
    if not unfit:
        return row
    return replace(
        row,
        not_comparable=f"{unfit} of its values are not positive, and a ratio needs positive values",
        next_step="read the values themselves",
    )


def _without_pair(row: Row, a: dict[int, Any], b: dict[int, Any], held: dict[str, int]) -> Row:
    """Both sides have values: measured differently, or never together in one round."""
    if a.keys() & b.keys():
        return replace(row, without_pair=held.get(row.case_id, 0))
    told = pairing.key_difference(next(iter(a.values())), next(iter(b.values())))
    return replace(row, not_comparable=told, next_step="measure both sides in the same way")


def _remedy(why: str, label: str) -> str:
    """What to do about values that were left out: flagged samples have a cause that can be named."""
    for flag, remedy in REMEDIES.items():
        if why.startswith(f"{DOUBTED} {flag}"):
            return f"{remedy} on {label}"
    return f"mend it on {label}"


def _by_case(rejected: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    """By case, the status and the reason of each run that has no value of it."""
    ends: dict[str, list[tuple[str, str]]] = {}
    for case_id, status, why in rejected[["case_id", "status", "why"]].itertuples(index=False, name=None):
        ends.setdefault(case_id, []).append((status, why))
    return ends


def _on_one_side(row: Row, ends: Sequence[tuple[str, str]], label: str) -> Row:
    """Only one side has values: the other one's runs ended otherwise, or never measured it."""
    whys = [why for _, why in ends]
    if whys and row.unit == SECONDS:
        runs = f"{len(whys)} run" + ("s" if len(whys) > 1 else "")
        return replace(
            row,
            not_comparable=f"{label}: {most_common(whys)} ({runs})",
            failed=label if any(status in BAD for status, _ in ends) else "",
            next_step=f"{_remedy(most_common(whys), label)} and measure again",
        )
    what = "" if row.unit == SECONDS else f"quantity {row.unit} "
    return replace(row, next_step=f"{label}: {what}not measured")
