"""Values of two sides in, the ones that belong together out: pairs within rounds or runs, or none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench_lib.comparing.replicates import SAME, SECONDS
from bench_lib.comparing.stats import Floats

CASE = ["case_id", "unit"]
Case = tuple[str, str]
LeftOut = list[tuple[str, str]]
LogRatio = Callable[[pd.DataFrame], "pd.Series[float]"]

_WORDS = {
    "calls": "calls a sample",
    "measure_version": "version of the measuring code",
    "world_size": "world size",
    "gpu_name": "GPU",
    "mig": "MIG slice",
    "params": "parameters",
    "precision": "precision in effect",
}
_IN_A_PAIR = [
    *("key", "value", "run_id", "started_at", "boot_id", "gpu_uuid"),  # what makes a pair
    *("turns", "measured_as"),  # what a contrast asks of one
    *("policy", "timing", "gpu_name"),  # what is told of one that is left out
]


@dataclass(frozen=True)
class Values:
    """The values of one case that are compared; `log_ratios` one a pair in run order, () if unpaired.

    `pairs` names what paired each log ratio: its round, or its run.
    """

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    log_ratios: tuple[float, ...] = ()
    pairs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Together:
    """Values by case and unit, and what was left out on the way."""

    values: dict[Case, Values]
    left_out: LeftOut


def with_key_ids(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both sides with the columns `key`, equal where values were measured in the same way, and `number`.

    The number is that of the case and unit: numbers are joined and counted far faster than names.
    """
    for name, of in (("key", SAME), ("number", CASE)):
        ids = pd.concat([a[of], b[of]]).groupby(of, dropna=False, sort=False).ngroup().to_numpy()
        a, b = a.assign(**{name: ids[: len(a)]}), b.assign(**{name: ids[len(a) :]})
    return a, b


def in_pairs(
    a: pd.DataFrame, b: pd.DataFrame, on: str, labels: tuple[str, str], log_ratio: LogRatio | None
) -> Together:
    """Values paired within each value of column `on` (`round`, or `run_id` for a contrast).

    Runs of different boots or GPUs are no pair. Of a case measured in several ways the way with most
    pairs counts. `log_ratio` gives the log ratios of merged pairs where it is not that of the values.
    """
    (a, again_a), (b, again_b) = (
        _once(_narrow(side, on), on, label) for side, label in zip((a, b), labels, strict=True)
    )
    both = a.merge(b.drop(columns=CASE), on=["number", on], suffixes=("", "_b")).sort_values("started_at")
    apart = (both["boot_id"] != both["boot_id_b"]) | (both["gpu_uuid"] != both["gpu_uuid_b"])
    pairs = _where(~apart & (both["key"] == both["key_b"]), both)
    pairs = pairs.assign(key_chosen=_most_used(pairs.groupby(["number", "key"]).size(), pairs))
    used = _where(pairs["key"] == pairs["key_chosen"], pairs)
    used = used.assign(log_ratio=_log(used["value_b"]) - _log(used["value"]))
    if log_ratio is not None:
        used = used.assign(log_ratio=log_ratio(used))
    columns = ["value", "value_b", "log_ratio", on]
    values = {case: Values(*found) for case, found in _by_case(used, columns).items()}
    why = "its two runs come from different boots or GPUs, so they are no pair"
    machines = [(f"round {name}", why) for name in sorted(set(both.loc[apart, on]))]
    others = _measured_otherwise(pairs[pairs["key"] != pairs["key_chosen"]], "pairs")
    return Together(values, [*again_a, *again_b, *machines, *others])


def side_by_side(a: pd.DataFrame, b: pd.DataFrame, labels: tuple[str, str]) -> Together:
    """Values of both sides without pairs; of several ways of measuring the one with most runs."""
    sizes = [side.groupby(["number", "key"]).size() for side in (a, b)]
    shared = pd.concat(sizes, axis=1, join="inner").min(axis=1)
    of_case: list[dict[Case, tuple[float, ...]]] = []
    left_out: LeftOut = []
    for side, label in ((a, labels[0]), (b, labels[1])):
        runs = side.sort_values("started_at")
        runs = runs.assign(key_chosen=_most_used(shared, runs)).dropna(subset="key_chosen")
        same = runs["key"] == runs["key_chosen"]
        of_case.append({case: value for case, (value,) in _by_case(runs[same], ["value"]).items()})
        left_out += _measured_otherwise(runs[~same], f"runs of {label}")
    return Together({case: Values(of_case[0][case], of_case[1][case]) for case in of_case[0]}, left_out)


def key_difference(a: Mapping[str, object], b: Mapping[str, object]) -> str:
    """In words, how two values were measured differently; "" when they were not."""
    told = []
    for name in SAME:
        one, other = _plain(a[name]), _plain(b[name])
        if one != other:
            told.append(f"{_WORDS.get(name, name)} {one} against {other}")
    return ", ".join(told)


def _narrow(values: pd.DataFrame, on: str) -> pd.DataFrame:
    """The columns that pairs are made of: joining all of them takes most of the time."""
    kept = dict.fromkeys([*CASE, "number", on, *_IN_A_PAIR])
    return values[[name for name in kept if name in values.columns]]


def _where(holds: "pd.Series[bool]", rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of which it holds: most often all, and to take rows of so many columns costs the most here."""
    return rows if holds.all() else rows[holds]


def _once(values: pd.DataFrame, on: str, label: str) -> tuple[pd.DataFrame, LeftOut]:
    """One value a case and round: the later one where a round holds two."""
    values = _where(values[on] != "", values).sort_values("started_at")
    again = values.duplicated(["number", on], keep="last")
    if not again.any():
        return values, []
    times = values.loc[again & (values["unit"] == SECONDS), "case_id"].value_counts()
    why = "measured twice in one round, the later one counts"
    return values[~again], [(str(case), f"{label}: {why} ({n}x)") for case, n in times.items()]


def _by_case(values: pd.DataFrame, columns: list[str]) -> dict[Case, tuple[Any, ...]]:
    """By case: of each column its values, in the order of the rows."""
    rows: dict[Case, list[tuple[Any, ...]]] = {}
    listed = (values[name].to_numpy().tolist() for name in (*CASE, *columns))
    for case_id, unit, *row in zip(*listed, strict=True):
        rows.setdefault((case_id, unit), []).append(tuple(row))
    return {case: tuple(zip(*found, strict=True)) for case, found in rows.items()}


def _most_used(sizes: "pd.Series[int]", values: pd.DataFrame) -> "pd.Series[int]":
    """For each value the key of the way its case was measured in most often; `sizes`: by number and key."""
    ranked = sizes.rename("size").reset_index().sort_values("size", kind="stable")
    return values["number"].map(ranked.drop_duplicates("number", keep="last").set_index("number")["key"])


def _were(what: str, n: int) -> str:
    """`pairs were`; of one `pair was`."""
    return f"{what} were" if n > 1 else f"{what.replace('s', '', 1)} was"


def _measured_otherwise(others: pd.DataFrame, what: str) -> LeftOut:
    if others.empty:
        return []
    names = ["case_id", "policy", "timing", "gpu_name"]
    times = others.loc[others["unit"] == SECONDS, names].value_counts(sort=False).reset_index()
    return [
        (
            case_id,
            f"{n} {_were(what, n)} measured otherwise (policy {policy}, timing {timing}{gpu and f', {gpu}'})",
        )
        for case_id, policy, timing, gpu, n in times.itertuples(index=False)
    ]


def _log(values: "pd.Series[float]") -> Floats:
    logs: Floats = np.log(values.where((values > 0) & np.isfinite(values)).to_numpy())
    return logs


def _plain(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) or "none"
