"""What lies in results: campaigns, machines and stacks, cases by family and status, as sections."""

from collections.abc import Iterable, Mapping

import pandas as pd

from bench_lib.comparing.store import Data
from bench_lib.model import Status
from bench_lib.pages.page import Block, Code, Inline, Number, Section, Table

_LOADED = (
    "driver.version",
    "driver.cuda",
    "cudart.version",
    "cudnn.version",
    "nccl.version",
    "torch.version",
)


def of_campaigns(campaigns: Mapping[str, Data]) -> Section:
    """A row a campaign: stacks, families, GPU, runs, cases, the days."""
    rows = tuple(_campaign(name, data) for name, data in campaigns.items())
    head = ("campaign", "stacks", "families", "device", "runs", "cases measured", "first run", "last run")
    return Section("What was measured", (Table(head, rows),) if rows else ("No campaign.",))


def _campaign(name: str, data: Data) -> tuple[Inline, ...]:
    runs, ok = data.runs, data.cases[data.cases["status"] == Status.OK]
    return (
        Code(name),
        _listed(runs["stack"]),
        _listed(ok["family"]),
        _listed(runs["gpu_name"].where(runs["gpu_name"] != "", runs["device"])),
        Number(str(len(runs)), len(runs)),
        Number(str(len(ok)), len(ok)),
        _day(runs["started_at"].min()),
        _day(runs["started_at"].max()),
    )


def of_machines(data: Data) -> Section:
    """A row a stack and machine: what was loaded there, and how many runs."""
    rows: list[tuple[Inline, ...]] = []
    for (stack, host, gpu), runs in data.runs.groupby(["stack", "host", "gpu_name"]):
        known = {**runs["driver_identity"].iloc[-1], **runs["stack_identity"].iloc[-1]}
        loaded = ", ".join(f"{key} {known[key]}" for key in _LOADED if key in known)
        rows.append(
            (Code(str(stack)), str(gpu) or "CPU", Code(str(host)), loaded, Number(str(len(runs)), len(runs)))
        )
    return Section("On what", (Table(("stack", "device", "host", "as loaded", "runs"), tuple(rows)),))


def of_families(data: Data) -> Section:
    """Cases by family and status, and the reasons of those that have no times."""
    statuses = [status for status in Status if (data.cases["status"] == status).any()]
    rows: list[tuple[Inline, ...]] = [
        (Code(str(family)), *(_number((cases["status"] == status).sum()) for status in statuses))
        for family, cases in data.cases.groupby("family")
    ]
    blocks: list[Block] = [Table(("family", *statuses), tuple(rows))]
    reasons = tuple(_reasons(data.cases[data.cases["status"] != Status.OK]))
    if reasons:
        blocks += ["Why cases have no times:", Table(("family", "status", "reason", "n"), reasons)]
    return Section("Cases by family and how they ended", tuple(blocks))


def _reasons(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    for (family, status, reason), found in cases.groupby(["family", "status", "reason"]):
        yield Code(str(family)), str(status), str(reason), _number(len(found))


def _number(n: int) -> Number:
    return Number(str(n), int(n))


def _listed(values: pd.Series) -> str:
    return ", ".join(sorted({str(value) for value in values}))


def _day(moment: pd.Timestamp) -> str:
    return str(moment)[:10]
