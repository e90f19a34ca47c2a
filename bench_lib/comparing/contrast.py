"""Two values of one parameter compared inside each run: runs are the replicates."""

from typing import Any

import pandas as pd

from bench_lib.comparing import calibrate, machines
from bench_lib.comparing.changes import Comparison
from bench_lib.comparing.matching import match, other_margins
from bench_lib.comparing.replicates import SECONDS, Replicates, params_of, replicates
from bench_lib.comparing.sampled import Blocks
from bench_lib.comparing.sides import Side
from bench_lib.comparing.verdicts import Pairing, grouped
from bench_lib.errors import UsageError, unknown
from bench_lib.model import NULL_SUFFIX, Case, scalar_text
from bench_lib.observing import notes as observed

_SETS_PRECISION = ("precision", "dtype", "autocast", "tf32")  # parameters that mean to change it


def contrast(
    side: Side, parameter: str, baseline: str, candidate: str, values: Replicates | None = None
) -> Comparison:
    """The cases of `side` with `parameter` at `candidate` against those with it at `baseline`.

    All other parameters are equal; a row is one combination of them. Values are compared as text
    (true and false as in JSON). Series measured in the same turns are compared turn by turn. `values`
    are the side's replicates where they are known already. Raises UsageError naming what exists for an
    unknown parameter or value.
    """
    found = values or replicates(side.data)
    labels = (f"{parameter}={baseline}", f"{parameter}={candidate}")
    _check(found, parameter, (baseline, candidate), f" in campaign {side.campaign!r}")
    a, b = (_at(found, parameter, value) for value in (baseline, candidate))
    matched = match(a, b, labels, "run_id", lambda pairs: _by_turns(pairs, side.data.measured.blocks))
    if not matched.rows:
        raise UsageError(
            f"no case was measured both with {labels[0]} and with {labels[1]} "
            "and the same other parameters; choose another pair"
        )
    groups = grouped(matched.rows, Pairing.RUNS)
    differ = machines.spreads(groups.cases, side.data.runs)
    return Comparison(
        baseline=labels[0],
        candidate=labels[1],
        campaign=side.campaign,
        interleaved=True,
        pairing=Pairing.RUNS,
        differences=(),
        attribution=f"{parameter} {baseline} -> {candidate}, inside each run of {side.label}",
        canaries=groups.canaries,
        canaries_moved=bool(groups.moved),
        cases=machines.told(groups.cases, differ),
        quantities=groups.quantities,
        left_out=(*side.data.skipped, *matched.left_out),
        notes=(
            *_notes(side, a, b),
            *other_margins(a, b),
            *_against_itself(side, found, parameter, (baseline, candidate), groups.changed),
        ),
        machines_differ=differ,
    )


def _check(found: Replicates, parameter: str, values: tuple[str, str], where: str) -> None:
    """Raise UsageError unless the parameter and both its values were measured."""
    params = _params(found)
    if not any(parameter in one for one in params):
        raise unknown("parameter", parameter, sorted({name for one in params for name in one}), where)
    known = _known(found, parameter)
    for value in values:
        if value not in known:
            raise unknown(f"value of {parameter}", value, known, where)
    if values[0] == values[1]:
        raise UsageError(
            f"{parameter}={values[0]} is on both sides; name two values (there: {', '.join(known)})"
        )


def _params(found: Replicates) -> list[dict[str, Any]]:
    return [params_of(text) for frame in (found.values, found.rejected) for text in frame["params"].unique()]


def _known(found: Replicates, parameter: str) -> list[str]:
    return sorted({scalar_text(one[parameter]) for one in _params(found) if parameter in one})


def _against_itself(
    side: Side, found: Replicates, parameter: str, values: tuple[str, str], changed: bool
) -> list[str]:
    """The baseline's value against its second copy in one line, where the runs hold that."""
    null = values[0] + NULL_SUFFIX
    if null == values[1] or null not in _known(found, parameter):
        return []
    line = calibrate.quoted(contrast(side, parameter, values[0], null, found), changed)
    return [line] if line else []


def _at(found: Replicates, parameter: str, value: str) -> Replicates:
    """The cases with the parameter at this value, named by their other parameters."""
    return Replicates(_narrowed(found.values, parameter, value), _narrowed(found.rejected, parameter, value))


def _narrowed(frame: pd.DataFrame, parameter: str, value: str) -> pd.DataFrame:
    params = {text: params_of(text) for text in frame["params"].unique()}
    chosen = {
        text for text, one in params.items() if parameter in one and scalar_text(one[parameter]) == value
    }
    rows = frame[frame["params"].isin(chosen)].reset_index(drop=True)
    of_row = list(rows[["family", "op", "params"]].itertuples(index=False, name=None))
    named = {
        one: Case(one[0], one[1], {k: v for k, v in params[one[2]].items() if k != parameter})
        for one in set(of_row)
    }
    ids = {one: (case.case_id, case.params_json) for one, case in named.items()}
    return rows.assign(
        measured_as=rows["case_id"],
        case_id=pd.Series([ids[one][0] for one in of_row], dtype=object),
        params=pd.Series([ids[one][1] for one in of_row], dtype=object),
        precision="" if parameter in _SETS_PRECISION else rows["precision"],
    )


def _by_turns(pairs: pd.DataFrame, measured: Blocks) -> "pd.Series[float]":
    """The log ratio of each pair: the median over shared turns, else that of the medians."""
    turns = pairs[(pairs["turns"] != "") & (pairs["turns"] == pairs["turns_b"]) & (pairs["unit"] == SECONDS)]
    if turns.empty:
        return pairs["log_ratio"]
    names = turns[["run_id", "measured_as", "measured_as_b"]].itertuples(index=False)
    found = measured.turn_ratios([((run, one), (run, other)) for run, one, other in names])
    return pd.Series(found, turns.index).reindex(pairs.index).fillna(pairs["log_ratio"])


def _notes(side: Side, a: Replicates, b: Replicates) -> list[str]:
    notes = observed.on_code([side.data.runs], set(a.values["family"]))
    if _always_in_one_order(a.values, b.values):
        notes.append(
            "the two values were measured one after the other and in the same order in every run, "
            "so what changes within a run is not told from them"
        )
    ended_early = int((~side.data.runs["complete"]).sum())
    if ended_early:
        notes.append(f"{side.label}: incomplete runs: {ended_early}; the cases finished in them are used")
    return notes


def _always_in_one_order(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Whether cases that share no turns stood in one order in all runs, where there are several."""
    on = ["run_id", "case_id", "unit"]
    columns = [*on, "turns", "position"]
    both = a[columns].merge(b[columns], on=on, suffixes=("", "_b"))
    apart = both[(both["turns"] == "") | (both["turns"] != both["turns_b"])]
    later = apart["position_b"] - apart["position"]
    return apart["run_id"].nunique() > 1 and bool((later > 0).all() or (later < 0).all())
