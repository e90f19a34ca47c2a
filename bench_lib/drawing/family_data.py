"""What the charts of one family are drawn from: one stack's cases, compared inside their runs, or as medians.

Nothing here computes statistics of its own: ratios and intervals are those of `contrast`.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from bench_lib.comparing.changes import CaseChange, Change
from bench_lib.comparing.contrast import contrast
from bench_lib.comparing.replicates import KEY, SECONDS, params_of, replicates
from bench_lib.comparing.sides import Side
from bench_lib.comparing.stats import FEWEST
from bench_lib.comparing.store import Data
from bench_lib.errors import UsageError
from bench_lib.model import BAD, Status
from bench_lib.units import ends_text

_PLACE = ["campaign", "stack", "device", "gpu_name"]


@dataclass(frozen=True)
class Median:
    """One number of one case: the median over `runs`, which holds the value of each run in `unit`."""

    op: str
    params: dict[str, Any]
    metric: str
    unit: str
    value: float
    runs: tuple[float, ...]
    nbytes: float
    flop: float = math.nan


def by_stack(data: Data) -> dict[str, Data]:
    """The data of each stack on each device by a name that tells them apart; their runs are never pooled."""
    several = {column: data.runs[column].nunique() > 1 for column in ("campaign", "device", "gpu_name")}
    found = {}
    measured = data.runs[data.runs["run_id"].isin(set(data.cases["run_id"]))]
    for (campaign, stack, device, gpu), runs in measured.groupby(_PLACE):
        campaign_stack = f"{campaign}/{stack}" if several["campaign"] else str(stack)
        told = several["device"] or several["gpu_name"]
        on = f" on {gpu if device == 'cuda' else 'the CPU'}" if told else ""
        found[campaign_stack + on] = data.of_runs(set(runs["run_id"]))
    return found


def of_family(data: Data, family: str) -> Data:
    """The cases of one family. Raises UsageError where none was measured."""
    cases = data.cases[data.cases["family"] == family].reset_index(drop=True)
    if not (cases["status"] == Status.OK).any():
        raise UsageError(f"the data holds nothing of the family {family}; measure it with --family {family}")
    return replace(data, cases=cases)


def usual(data: Data) -> Data:
    """Each case as it was measured in most runs: policies, say, are never pooled."""
    values = replicates(data).values
    values = values[values["unit"] == SECONDS]
    way = values.groupby(KEY, dropna=False).ngroup()
    sizes = values.assign(way=way).groupby(["case_id", "way"])["run_id"].nunique().rename("n").reset_index()
    chosen = sizes.sort_values("n", kind="stable").drop_duplicates("case_id", keep="last")
    kept = values.assign(way=way).merge(chosen, on=["case_id", "way"])[["run_id", "case_id"]]
    return replace(data, cases=data.cases.merge(kept, on=["run_id", "case_id"]))


def against(data: Data, parameter: str, baseline: str) -> dict[str, tuple[CaseChange, ...]]:
    """By value of a parameter: its cases against those with the baseline's value, inside each run.

    A case that only one of them has is among them, without a ratio.
    """
    side = Side("the stack", ", ".join(sorted(set(data.runs["campaign"]))), data)
    found, named = replicates(data), data.cases[["case_id", "params"]].drop_duplicates()
    of_value: dict[str, set[str]] = {}
    for case_id, text in named.itertuples(index=False):
        of_value.setdefault(str(params_of(text).get(parameter, "")), set()).add(case_id)
    rows = {}
    for value in sorted(of_value.keys() - {"", baseline}):
        both = found.of_cases(of_value[value] | of_value.get(baseline, set()))
        with suppress(UsageError):  # never in one run with the baseline
            rows[value] = contrast(side, parameter, baseline, value, both).cases
    return rows


def medians(data: Data) -> list[Median]:
    """Every number of every case, quantities too; each case as it was measured in most runs."""
    chosen = usual(data)
    values = replicates(chosen).values
    work = chosen.cases[["run_id", "case_id", "nbytes", "flop"]]
    values = values.merge(work, on=["run_id", "case_id"])
    found = []
    for (_, unit), rows in values.groupby(["case_id", "unit"], sort=False):
        first = rows.iloc[0]
        found.append(
            Median(
                op=str(first["op"]),
                params=params_of(first["params"]),
                metric=str(first["metric"]),
                unit=str(unit),
                value=float(rows["value"].median()),
                runs=tuple(float(one) for one in rows["value"]),
                nbytes=float(first["nbytes"]),
                flop=float(first["flop"]),
            )
        )
    return found


def gigabytes(one: Median) -> list[float]:
    """GB/s of a case: its median first, then each run's."""
    return [one.nbytes / seconds / 1e9 for seconds in (one.value, *one.runs)]


def runs_text(counts: Iterable[int]) -> str:
    """How many runs stand behind the numbers, and whether they have intervals."""
    known = sorted(set(counts))
    if not known:
        return ""
    runs = f"{ends_text(map(str, (known[0], known[-1])))} run{'s' * (known[-1] > 1)}"
    if known[-1] < FEWEST:
        return f"{runs}: no intervals, which need {FEWEST} runs."
    if known[0] < FEWEST:
        return f"{runs}; bars are 95 % intervals, which need {FEWEST} runs."
    return f"{runs}; bars are 95 % intervals over the runs."


def dots_text(counts: Iterable[int]) -> str:
    """How many runs stand behind medians, and that each is a dot."""
    known = sorted(set(counts))
    if known == [1]:
        return "1 run."
    return f"Medians of {ends_text(map(str, (known[0], known[-1])))} runs; each small dot is a run."


def to_tell(rows: Iterable[CaseChange]) -> tuple[list[CaseChange], str]:
    """The rows that a title may tell: those with an interval; where none has one all of them, and a doubt."""
    there = [row for row in rows if row.ratio]
    settled = [row for row in there if row.low is not None]
    return (settled, "") if settled else (there, few_text(row.n for row in there))


def range_text(rows: Iterable[CaseChange]) -> str:
    """The least and the largest speed-up of rows: `1.03 (not settled) to 2.00`."""
    ordered = sorted((row for row in rows if row.ratio), key=lambda row: -(row.ratio or 1.0))
    return ends_text(gain_text(row, doubt_text(row)) for row in (ordered[0], ordered[-1]))


def gain_text(row: CaseChange, *said: str) -> str:
    """A speed-up, and in brackets what is to be said of it."""
    gain, beside = 1 / (row.ratio or 1.0), ", ".join(filter(None, said))
    return (f"{gain:.2f}" if gain < 10 else f"{gain:.3g}") + (f" ({beside})" if beside else "")


def doubt_text(row: CaseChange) -> str:
    """`not settled` where a speed-up may as well be a loss: it is unclear, and its interval holds 1."""
    around = row.low is not None and row.high is not None and row.low <= 1 <= row.high
    return "not settled" if around and row.change is Change.UNCLEAR else ""


def few_text(counts: Iterable[int]) -> str:
    """What a title adds to medians of few runs: ` (1 run)`; "" from `FEWEST` on."""
    most = max(counts, default=0)
    return f" ({most} run{'s' * (most > 1)})" if 0 < most < FEWEST else ""


def failed_text(data: Data) -> str:
    """How many cases of the family have no number; "" where all have."""
    good = set(data.cases.loc[data.cases["status"] == Status.OK, "case_id"])
    bad = set(data.cases.loc[data.cases["status"].isin([str(one) for one in BAD]), "case_id"]) - good
    if not bad:
        return ""
    return f"{len(bad)} case{'s' * (len(bad) > 1)} failed or computed wrong numbers, and cannot be drawn."


def batch_text(data: Data) -> str:
    """The batch of the cases, "" where there are several or none."""
    batches = {params_of(text).get("batch") for text in data.cases["params"].unique()} - {None}
    return f"Batch {batches.pop()}." if len(batches) == 1 else ""


def where_text(data: Data, *libraries: str) -> str:
    """A sentence on the device, driver and libraries of the data, each named where there is just one."""
    devices = set(data.runs["gpu_name"].where(data.runs["device"] == "cuda", "CPU")) - {""}
    stacks = set(data.runs["stack"])
    told = [f"stack {stack}" for stack in stacks - {"here"}] * (len(stacks) == 1)
    told += [*devices] * (len(devices) == 1)
    for name, column, key in [
        ("driver", "driver_identity", "driver.version"),
        *((library, "stack_identity", f"{library}.version") for library in libraries),
    ]:
        versions = {str(identity.get(key, "")) for identity in data.runs[column]} - {""}
        told += [f"{name} {version}" for version in versions] * (len(versions) == 1)
    return ", ".join(told) + "." if told else ""
