"""Made-up campaigns with a known truth, written through the project's own journal and schema.

    write_campaign(results, "demo", {"old": 1.0, "new": 0.97}, rounds=10)

gives ten interleaved rounds of `old`, `new` and `old#2` in which every case of `new` takes 3 % less
time. `Noise` says what else happens: process effects, drift, modes, spikes, a coarse clock.
`write_run` is the layer below: one run from its measurements, finished or left as a journal.
"""

import dataclasses
import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np

from bench_lib.comparing import store
from bench_lib.comparing.store import Data
from bench_lib.journaling import journal, journal_rows
from bench_lib.layout import CampaignFolder
from bench_lib.model import (
    Case,
    Identity,
    Measurement,
    RunInfo,
    Series,
    Status,
    Timing,
    Work,
)

EPOCH = 1_700_000_000.0
HASHES = {"11.8": "a" * 64, "12.4": "b" * 64}


@dataclass(frozen=True)
class Noise:
    """What moves a sample besides its case's true time; all relative but `step_seconds`."""

    process_sd: float = 0.004  # one factor a run and case
    sample_sd: float = 0.01
    drift: float = 0.0  # growth of the machine's pace over the whole campaign
    mode_share: float = 0.0  # share of the processes that land in a slow mode ...
    mode_shift: float = 0.04  # ... which is slower by this
    spike_share: float = 0.0  # share of the samples that take three times as long
    step_seconds: float = 0.0  # the clock's step; 0: exact


@dataclass(frozen=True)
class Machine:
    """One machine of the campaign; rounds of one campaign may come from several."""

    boot_id: str = "boot-1"
    host: str = "node-1"
    gpu_uuid: str = "GPU-00000000-0000-0000-0000-000000000001"
    gpu_name: str = "NVIDIA H200"
    mig: str = ""
    driver: str = "580.159"


@dataclass(frozen=True)
class SyntheticCase:
    """One case with its true time on the baseline in seconds."""

    case: Case
    seconds: float = 100e-6
    margin: float = 0.02
    timing: Timing = Timing.NATIVE
    calls: int = 1
    quantities: Mapping[str, float] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)  # by stack; default: the stack's factor
    work: Work = field(default_factory=Work)
    facts: Mapping[str, str] = field(default_factory=dict)


def cases(count: int = 6, family: str = "launch", margin: float = 0.02) -> list[SyntheticCase]:
    """`count` cases of one family, 100 µs and up."""
    return [
        SyntheticCase(Case(family, "op", {"size": 2**i, "metric": "submit"}), (100 + i) * 1e-6, margin)
        for i in range(count)
    ]


def canaries() -> list[SyntheticCase]:
    """Two canaries that take the same time on every stack."""
    return [
        SyntheticCase(Case("canary", op, {}), 500e-6, 0.02, scale={"*": 1.0})
        for op in ("sm_spin", "device_copy")
    ]


def identity(machine: Machine, stack: Mapping[str, str] | None = None, **settings: str) -> Identity:
    """An identity as a run on `machine` stores it; `stack` holds dotted keys."""
    return Identity(
        stack=dict(stack or cudart("11.8")),
        driver={"driver.version": machine.driver, "driver.cuda": "13.0"},
        machine={
            "host": machine.host,
            "boot_id": machine.boot_id,
            "gpu.name": machine.gpu_name,
            "gpu.uuid": machine.gpu_uuid,
            "gpu.mig": machine.mig,
            "kernel": "6.8.0",
        },
        settings={"context.wait": "spin", **settings},
        quantities={"clock_resolution_seconds": 1e-9, "loop_overhead_seconds": 2e-9},
    )


def cudart(version: str) -> dict[str, str]:
    """The stack identity of a raw run through one CUDA runtime."""
    return {
        "cudart.version": version,
        "cudart.path": f"/cache/{version}/libcudart.so",
        "cudart.sha256": HASHES.get(version, version.replace(".", "").ljust(64, "0")),
        "python.version": "3.12.3",
    }


def measurement(
    case: SyntheticCase,
    seconds: Iterable[float],
    *,
    flags: Sequence[str] = (),
    status: Status = Status.OK,
    reason: str = "",
    turns: str = "",
    position: int = 0,
) -> Measurement:
    """One measured case; without samples when its status is not ok."""
    series = Series(
        tuple(float(s) for s in seconds),
        tuple(flags),
        timing=case.timing,
        calls=case.calls,
        turns=turns,
        quantities=case.quantities,
        work=case.work,
        facts=case.facts,
    )
    return Measurement(
        case.case,
        status,
        reason,
        series if status is Status.OK else None,
        margin=case.margin,
        position=position,
        nodeid=f"benchmarks/bench_{case.case.family}.py::{case.case.case_id}",
        started_at=EPOCH,
    )


def run_info(campaign: str, arm: str, **fields: object) -> RunInfo:
    """A run of `arm`, with a random id unless one is given."""
    known: dict[str, object] = {
        "run_id": uuid.uuid4().hex,
        "stack": arm.partition("#")[0],
        "device": "cuda",
        "started_at": EPOCH,
    }
    return RunInfo(campaign=campaign, arm=arm, **{**known, **fields})  # type: ignore[arg-type]


def write_run(
    results: Path,
    info: RunInfo,
    identity: Identity,
    measurements: Iterable[Measurement],
    *,
    complete: bool = True,
    finish: bool = True,
) -> Path:
    """One run on disk. `complete=False`: killed before its end; `finish=False`: left as a journal."""
    folder = CampaignFolder(results, info.campaign)
    path = folder.journal(info.run_id)
    with mock.patch.object(os, "fsync"):  # made-up data need not outlive a power cut, and it is slow
        with journal.Journal(path) as lines:
            lines.run(info)
            lines.identity(identity)
            for one in measurements:
                lines.start(dataclasses.replace(one, series=None), info.policy, 10.0)
                lines.case(one, info.policy)
            if complete:
                lines.end(0)
        return journal.finish(path, folder) if finish else path


def write_campaign(
    results: Path,
    name: str,
    stacks: Mapping[str, float],
    *,
    rounds: int = 10,
    measured: Sequence[SyntheticCase] | None = None,
    noise: Noise = Noise(),
    samples: int = 20,
    null: bool = True,
    interleaved: bool = True,
    machine: Machine = Machine(),
    identities: Mapping[str, Mapping[str, str]] | None = None,
    policy: str = "default",
    seed: int = 0,
) -> list[str]:
    """A campaign of `stacks` (name -> factor on the times of the first); the ids of its runs.

    The first stack runs twice a round unless `null` is False. `interleaved=False` gives plain runs
    without a round, all of one stack before the next. `identities`: stack identity by stack name,
    a different cudart for each by default.
    """
    rng = np.random.default_rng(seed)
    measured = [*canaries(), *cases()] if measured is None else measured
    arms = [*stacks, f"{next(iter(stacks))}#2"] if null else list(stacks)
    known = identities or {stack: cudart(version) for stack, version in _versions(stacks).items()}
    order = _order(rng, arms, rounds, interleaved)
    ids = []
    for place, (number, position, arm) in enumerate(order):
        stack = arm.partition("#")[0]
        info = run_info(
            name,
            arm,
            round=f"round-{seed}-{number:03d}" if interleaved else "",
            position=position,
            policy=policy,
            started_at=EPOCH + 60.0 * place,
        )
        pace = 1 + noise.drift * place / max(len(order) - 1, 1)
        series = [
            measurement(
                case,
                times(rng, case.seconds * pace * _scale(case, stack, stacks[stack]), noise, samples),
                position=i,
            )
            for i, case in enumerate(measured)
        ]
        write_run(results, info, identity(machine, known[stack]), series)
        ids.append(info.run_id)
    return ids


def write_here(
    results: Path,
    name: str,
    runs: int,
    measured: Iterable[SyntheticCase],
    *,
    turns: str = "",
    machine: Machine = Machine(),
    **of_run: object,
) -> Data:
    """A campaign of plain runs of stack `here`, one after the other; it as it is loaded."""
    rng, cases = np.random.default_rng(3), list(measured)
    for number in range(runs):
        made = [measurement(one, times(rng, one.seconds, Noise(), 10), turns=turns) for one in cases]
        write_run(
            results, run_info(name, "here", started_at=EPOCH + number, **of_run), identity(machine), made
        )
    return store.load(results, [name])


def write_crashing(results: Path) -> SyntheticCase:
    """Three rounds `old` and `new` of campaign `demo` with one case, on which `new` crashes; the case."""
    (case,) = cases(1)
    for number in range(3):
        for arm, status in (("old", Status.OK), ("new", Status.CRASHED)):
            one = measurement(case, [1e-4] * 5, status=status, reason="exit code -11")
            write_run(results, run_info("demo", arm, round=f"r{number}"), identity(Machine()), [one])
    return case


def times(rng: np.random.Generator, seconds: float, noise: Noise, samples: int) -> list[float]:
    """The samples of one run and case whose true time is `seconds`."""
    process = math.exp(rng.normal(0, noise.process_sd)) if noise.process_sd else 1.0
    if rng.random() < noise.mode_share:
        process *= 1 + noise.mode_shift
    values = seconds * process * np.exp(rng.normal(0, noise.sample_sd, samples))
    values[rng.random(samples) < noise.spike_share] *= 3
    if noise.step_seconds:
        values = np.maximum(np.round(values / noise.step_seconds), 1) * noise.step_seconds
    return [float(v) for v in values]


def write_json(path: Path, run: Path) -> Path:
    """The `--benchmark-json` file that the run behind a journal would have written."""
    rows = journal_rows.rows(journal.read(run))
    by_case: dict[str, list[float]] = {}
    flags: dict[str, list[str]] = {}
    for row in rows["samples"]:
        by_case.setdefault(row["case_id"], []).append(row["seconds"])
        flags.setdefault(row["case_id"], []).append(row["flags"])
    inner = ("seconds", "flags", "event", "at")
    document = {
        "machine_info": {},
        "commit_info": {},
        "datetime": "2026-01-01T00:00:00+00:00",
        "version": "5.3.1",
        "benchmarks": [
            {
                "name": row["op"],
                "fullname": row["nodeid"],
                "extra_info": {"flags": flags[row["case_id"]]} if any(flags[row["case_id"]]) else {},
                "stats": {"data": by_case[row["case_id"]]},
            }
            for row in rows["cases"]
            if row["status"] == "ok"
        ],
        "cuda_gains": {
            "schema_version": 1,
            "runs": rows["runs"],
            "cases": [{k: v for k, v in row.items() if k not in inner} for row in rows["cases"]],
        },
    }
    path.write_text(json.dumps(document))
    return path


def replace(case: SyntheticCase, **fields: object) -> SyntheticCase:
    """The case with some fields changed."""
    return dataclasses.replace(case, **fields)  # type: ignore[arg-type]


def _versions(stacks: Iterable[str]) -> dict[str, str]:
    return {stack: ("11.8", "12.4", "12.6", "13.0", "13.5")[i] for i, stack in enumerate(stacks)}


def _scale(case: SyntheticCase, stack: str, factor: float) -> float:
    return case.scale.get(stack, case.scale.get("*", factor))


def _order(
    rng: np.random.Generator, arms: list[str], rounds: int, interleaved: bool
) -> list[tuple[int, int, str]]:
    if not interleaved:
        return [(number, 0, arm) for arm in arms for number in range(rounds)]
    return [
        (number, position, arm)
        for number in range(rounds)
        for position, arm in enumerate(rng.permutation(arms).tolist())
    ]
