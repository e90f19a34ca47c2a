"""One value a run, case and unit: the medians that are compared, and what is not fit for it, and why."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench_lib.comparing.sampled import Blocks, Name
from bench_lib.comparing.store import Data
from bench_lib.model import MOST_FLAGGED, Status, Timing

SECONDS = "seconds"  # the unit of times; any other unit is the name of a quantity
DOUBTED = "over 10 % of its samples are flagged"
EVENT_STEP_SECONDS = 0.5e-6  # the resolution CUDA's documentation states for event pairs

# Two values with any of these different are never compared or pooled.
KEY = ["device", "timing", "calls", "policy", "measure_version", "world_size", "gpu_name", "mig"]
# Nor are two values of one case: its id shows 1 and "1" alike, and torch may compute in TF32 unasked.
SAME = [*KEY, "params", "precision"]
_PRECISION = "precision."  # facts that say what was in effect
_RUN = ["run_id", "boot_id", "gpu_uuid", "gpu_name", "mig", "started_at", "resolution"]
_CASE = [
    "case_id",
    "family",
    "op",
    "params",
    "metric",
    "margin",
    "turns",
    "round",
    "run_id",
    "status",
    "position",
]
_STORED = [
    *(name for name in (*_CASE, *KEY) if name not in _RUN or name == "run_id"),
    *("n_samples", "n_flagged", "reason", "quantities", "facts"),
]
_NEEDED = [*_CASE, *KEY, "precision", "boot_id", "gpu_uuid", "started_at"]
_HOST_TIMED = (Timing.HOST, Timing.NATIVE)
_EVENT_TIMED = (Timing.COLD, Timing.BATCH, Timing.GRAPH)


@dataclass(frozen=True)
class Replicates:
    """The cases of some runs as values.

    `values`: a row a run, case and unit, with `value` (the median in seconds per call, or the
    quantity), `step` (the timer's, per call; NaN for quantities), the columns of `SAME` and of the run.
    `rejected`: a row a run and case that has no value, with `why`.
    """

    values: pd.DataFrame
    rejected: pd.DataFrame

    def of_cases(self, case_ids: Collection[str]) -> "Replicates":
        """Those of some cases only."""
        return Replicates(
            self.values[self.values["case_id"].isin(case_ids)].reset_index(drop=True),
            self.rejected[self.rejected["case_id"].isin(case_ids)].reset_index(drop=True),
        )


def replicates(data: Data) -> Replicates:
    """The values of every run and case, and the cases that are left out with the reason."""
    runs = data.runs.assign(resolution=[q.get("clock_resolution_seconds") for q in data.runs["quantities"]])
    cases = data.cases[_STORED].merge(runs[_RUN], on="run_id")
    cases = cases.assign(**_medians(data.measured.blocks, _names(cases)))
    on_cpu = cases["device"] != "cuda"
    if on_cpu.any():
        cases.loc[on_cpu, ["gpu_name", "mig"]] = ""
    cases["precision"] = pd.Series([_precision(facts) for facts in cases["facts"]], cases.index, dtype=object)
    why = _why(cases)
    bad = why.ne("")
    rejected = cases.loc[bad, _NEEDED].assign(why=why[bad])
    good = cases[~bad].reset_index(drop=True)
    rows, units, quantities = _quantities(good)
    values = good[_NEEDED].iloc[[*range(len(good)), *rows]].reset_index(drop=True)
    values = values.assign(
        unit=pd.Series([SECONDS] * len(good) + units, dtype=object),
        value=np.concatenate([good["median"], quantities]),
        step=np.concatenate([_steps(good, data.measured.blocks), np.zeros(len(rows))]),
    )
    return Replicates(values, rejected.reset_index(drop=True))


def _precision(facts: Any) -> str:
    """The precision in effect, as the case stored it: read back, not as it was asked for."""
    if not facts:
        return ""
    held = facts.items() if isinstance(facts, Mapping) else ()
    told = {str(name): value for name, value in held if str(name).startswith(_PRECISION)}
    return ", ".join(f"{name.removeprefix(_PRECISION)} {value}" for name, value in sorted(told.items()))


def params_of(text: str) -> dict[str, Any]:
    """The parameters of a case from their JSON; results that hold none give none."""
    try:
        params = json.loads(text or "{}")
    except ValueError:
        return {}
    return params if isinstance(params, dict) else {}


def summed_up(a: pd.DataFrame, b: pd.DataFrame, labels: tuple[str, str]) -> list[tuple[str, str]]:
    """Rejected rows of two sides as (case, reason): one entry a case and kind of end, with its runs.

    What ended in the same way on both sides is one entry.
    """
    one, other = _ends(a), _ends(b)
    shared = {end: (n, other[end]) for end, n in one.items() if end in other}
    both = [
        (
            case,
            f"{labels[0]} and {labels[1]}: {why} ({_runs(n) + ' each' if n == m else f'{n} and {m} runs'})",
        )
        for (case, why), (n, m) in shared.items()
    ]
    alone = [
        (case, f"{label}: {why} ({_runs(n)})")
        for label, ends in zip(labels, (one, other), strict=True)
        for (case, why), n in ends.items()
        if (case, why) not in shared
    ]
    return [*both, *alone]


def _ends(rejected: pd.DataFrame) -> dict[tuple[str, str], int]:
    """By case and reason, how many runs ended so: a failure counts under the text most of them gave."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for case_id, status, why in rejected[["case_id", "status", "why"]].itertuples(index=False):
        kind = why if status == Status.OK else status  # a failure's text may differ run by run
        kinds.setdefault((case_id, kind), []).append(why)
    return {(case, most_common(whys)): len(whys) for (case, _), whys in sorted(kinds.items())}


def _runs(n: int) -> str:
    return f"{n} run{'s' * (n != 1)}"


def most_common(reasons: list[str]) -> str:
    """The reason that was given most often, the first of them when several were."""
    return Counter(reasons).most_common(1)[0][0]


def _names(cases: pd.DataFrame) -> list[Name]:
    return list(zip(cases["run_id"].to_numpy(), cases["case_id"].to_numpy(), strict=True))


def _medians(measured: Blocks, names: Sequence[Name]) -> dict[str, Any]:
    """Of the samples of each name: their median, the most common flag, and how many are there and fit."""
    at = np.array([measured.places.get(name, -1) for name in names], dtype=int)
    flags = np.array([*measured.commonest_flags, None], dtype=object)
    numbers = {"median": measured.medians, "read": measured.sizes, "usable": measured.usable}
    numbers |= {"flagged": measured.flagged}
    return {"flag": flags[at]} | {name: np.append(of, np.nan)[at] for name, of in numbers.items()}


def _why(cases: pd.DataFrame) -> "pd.Series[str]":
    """Why each row cannot be used; "" when it can."""
    read, expected = cases["read"].fillna(0), cases["n_samples"].fillna(cases["read"]).fillna(0)
    flagged = cases["n_flagged"].fillna(cases["flagged"]).fillna(0)
    why = pd.Series("", index=cases.index, dtype=object)
    for holds, text in (  # the last that holds is the one told
        (~((cases["margin"] >= 0) & np.isfinite(cases["margin"])), "holds no margin to judge it by"),
        (flagged > MOST_FLAGGED * expected, _doubt),
        (cases["usable"] != read, "holds samples that are not positive numbers"),
        ((read != expected) | (read == 0), "not all of its samples could be read"),
        (cases.duplicated(["run_id", "case_id"], keep=False), "measured twice in one run"),
        (cases["status"] != Status.OK, _end),
    ):
        if holds.any():
            why[holds] = text if isinstance(text, str) else text(cases[holds])
    return why


def _doubt(cases: pd.DataFrame) -> "pd.Series[str]":
    return (f"{DOUBTED} " + cases["flag"].fillna("").astype(str)).str.rstrip()


def _end(cases: pd.DataFrame) -> "pd.Series[str]":
    return cases["status"] + np.where(cases["reason"] == "", "", ": " + cases["reason"])


def _steps(good: pd.DataFrame, measured: Blocks) -> "pd.Series[float]":
    """The timer's step per call: the clock's, the events', else the least gap between two samples."""
    host = good["timing"].isin(_HOST_TIMED)
    events = good["timing"].isin(_EVENT_TIMED) & (good["device"] == "cuda")
    clock = (
        pd.to_numeric(good["resolution"])
        .where(host)
        .fillna(pd.Series(EVENT_STEP_SECONDS, good.index).where(events))
    )
    step = clock / good["calls"].fillna(1).clip(lower=1)
    unknown = step.isna()
    if unknown.any():
        names = _names(good[unknown])
        gaps = measured.least_gaps(set(names))
        step[unknown] = [gaps.get(name, np.nan) for name in names]
    return step.fillna(0.0)


def _quantities(good: pd.DataFrame) -> tuple[list[int], list[str], list[float]]:
    """Of each quantity its row, its name and its value. Quantities have no timer, so no step."""
    found = [
        (row, str(name), float(value))
        for row, quantities in enumerate(good["quantities"])
        if quantities and isinstance(quantities, Mapping)
        for name, value in quantities.items()
        if value is not None
    ]
    return [row for row, _, _ in found], [name for _, name, _ in found], [value for _, _, value in found]
