"""Launches through several CUDA runtimes, each compared with the baseline runtime."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import pandas as pd

from bench_lib.comparing.changes import CaseChange
from bench_lib.comparing.compare import compare
from bench_lib.comparing.contrast import contrast
from bench_lib.comparing.replicates import SECONDS, params_of, replicates
from bench_lib.comparing.sides import Side
from bench_lib.comparing.store import Data
from bench_lib.errors import UsageError
from bench_lib.model import Status

BASELINE = "11.8"  # where it was not measured, the lowest version
PREFIX = "cudart-"
BURST, METRIC = "burst", "metric"
METRICS = {"submit": "the launch call alone (submit)", "launch_sync": "launch and wait (launch_sync)"}


@dataclass(frozen=True)
class Runtimes:
    """Every runtime against the baseline runtime.

    `rows`: runtime -> size of the burst, or metric -> its change. `runs`: a row a run, with `runtime`,
    `metric` and `value` in seconds; empty for the ladder.
    """

    baseline: str
    rows: dict[str, dict[str, CaseChange]]
    runs: pd.DataFrame


def ladder(data: Data) -> Runtimes | None:
    """The runtimes of the ladder, compared inside its runs; None where fewer than two can be compared."""
    cases = _ladder_cases(data)
    if cases["runtime"].nunique() < 2:
        return None
    baseline = _baseline(cases["runtime"])
    part = replace(data, cases=cases.drop(columns="runtime"))
    side, found = Side("the ladder", _campaigns(cases), part), replicates(part)
    rows: dict[str, dict[str, CaseChange]] = {}
    for runtime in set(cases["runtime"]) - {baseline}:
        both = found.of_cases(set(cases.loc[cases["runtime"].isin([baseline, runtime]), "case_id"]))
        with suppress(UsageError):  # never in one run with the baseline
            rows[runtime] = _by(BURST, contrast(side, "runtime", baseline, runtime, both).cases)
    return _found(baseline, rows, pd.DataFrame())


def processes(data: Data) -> Runtimes | None:
    """The runtimes measured one process each, in rounds; None where fewer than two can be compared."""
    cases = _process_cases(data)
    if cases["runtime"].nunique() < 2:
        return None
    baseline = _baseline(cases["runtime"])
    sides = {
        str(runtime): Side(str(runtime), _campaigns(own), _part(data, own))
        for runtime, own in cases.groupby("runtime")
    }
    found = {runtime: replicates(side.data) for runtime, side in sides.items()}
    rows = {
        runtime: _by(METRIC, compare(sides[baseline], side, (found[baseline], found[runtime])).cases)
        for runtime, side in sides.items()
        if runtime != baseline
    }
    runs = run_medians(replace(data, cases=cases))
    runs = runs.assign(runtime=runs["arm"].str.removeprefix(PREFIX))
    return _found(baseline, rows, runs)


def run_medians(data: Data) -> pd.DataFrame:
    """A row a run and case that is fit to be compared: its `value` in seconds, its campaign, arm and side."""
    values = replicates(data).values
    times = values[values["unit"] == SECONDS]
    known = [name for name in ("run_id", "campaign", "arm", "side") if name in data.runs.columns]
    return times.merge(data.runs[known], on="run_id")


def _ladder_cases(data: Data) -> pd.DataFrame:
    """The good cases of the ladder, with their `runtime`."""
    cases = data.cases[(data.cases["family"] == "ladder") & (data.cases["metric"] == "submit")]
    runtimes = [str(params_of(text).get("runtime", "")) for text in cases["params"]]
    return _good(cases.assign(runtime=pd.Series(runtimes, cases.index, dtype=str)))


def _process_cases(data: Data) -> pd.DataFrame:
    """The good launches of an empty kernel in cudart stacks, with their `runtime` (`11.8#2` included)."""
    cases = data.cases
    wanted = (cases["family"] == "launch") & (cases["op"] == "empty") & cases["arm"].str.startswith(PREFIX)
    cases = cases[wanted & cases["metric"].isin(list(METRICS))]
    ours = [params_of(text).get("api") == "cudart" for text in cases["params"]]
    cases = cases[pd.Series(ours, cases.index, dtype=bool)]
    return _good(cases.assign(runtime=cases["arm"].str.removeprefix(PREFIX)))


def _good(cases: pd.DataFrame) -> pd.DataFrame:
    return cases[(cases["status"] == Status.OK) & (cases["runtime"] != "")]


def _part(data: Data, cases: pd.DataFrame) -> Data:
    return replace(data.of_runs(set(cases["run_id"])), cases=cases.drop(columns="runtime"))


def _campaigns(cases: pd.DataFrame) -> str:
    return ", ".join(sorted(set(cases["campaign"])))


def _baseline(runtimes: Iterable[str]) -> str:
    known = set(runtimes)
    return BASELINE if BASELINE in known else min(known, key=version_key)


def version_key(runtime: str) -> tuple[int, tuple[int, ...], str]:
    """Sort key of a runtime: versions by number, then second copies, then whatever is not a version."""
    parts = runtime.split(".")
    if all(part.isdecimal() for part in parts):
        return 0, tuple(int(part) for part in parts), ""
    return 1 if "#" in runtime else 2, (), runtime


def _by(parameter: str, cases: Iterable[CaseChange]) -> dict[str, CaseChange]:
    return {str(row.params[parameter]): row for row in cases if row.ratio and parameter in row.params}


def _found(baseline: str, rows: dict[str, dict[str, CaseChange]], runs: pd.DataFrame) -> Runtimes | None:
    """The runtimes that have a ratio, in order of version; None where there is none."""
    ordered = {runtime: rows[runtime] for runtime in sorted(rows, key=version_key) if rows[runtime]}
    return Runtimes(baseline, ordered, runs) if ordered else None
