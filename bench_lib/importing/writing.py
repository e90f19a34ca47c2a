"""Runs of another tool's file in, the three Parquet tables of a campaign out, and each file once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench_lib import __version__, schema
from bench_lib.errors import DataError, UsageError
from bench_lib.importing.formats import read
from bench_lib.importing.found import FoundCase, FoundRun, Source
from bench_lib.journaling import readable
from bench_lib.journaling.held import IMPORTED
from bench_lib.journaling.journal import write_table
from bench_lib.layout import MERGED, TABLES, CampaignFolder, check_name
from bench_lib.model import Case, Status
from bench_lib.units import count_text

_ID_LETTERS = 24
Row = dict[str, Any]


@dataclass(frozen=True)
class Imported:
    """What became of a file."""

    format: str
    runs: int
    cases: int
    bad: int  # cases that ended otherwise than ok
    notes: tuple[str, ...]

    def sentence(self, path: Path, campaign: str, stack: str) -> str:
        """What was done, for a person."""
        bad = f", {self.bad} of them not ok" if self.bad else ""
        held = f"{count_text(self.runs, 'run')} with {count_text(self.cases, 'case')}"
        return f"{path}: {self.format}, {held}{bad} into {campaign}/{stack}"


def import_file(path: Path, stack: str, campaign: str, results: Path) -> Imported:
    """Write the runs of a file as runs of `stack` into a campaign.

    Raises UsageError for a file of no known format or one that the campaign holds already, and for a
    campaign that this suite measured into; DataError for a damaged file, naming its line.
    """
    check_name("stack", stack)
    source = Source.read(path)
    form, found = read(source)
    folder = CampaignFolder(results, campaign)
    with folder.lock():
        _only_imported(folder)
        ids = [f"{source.digest[:_ID_LETTERS]}-{place}" for place in range(len(found))]
        if known := _stack_of(folder, ids[0]):
            raise UsageError(
                f"{path} is in campaign {campaign!r} already, as stack {known!r}: the same content is the "
                "same run; name another file, or remove that run's files first"
            )
        command = f"{IMPORTED}{path.name}, {form.name}"
        rows = [
            _rows(run_id, campaign, stack, run, run.started_at or path.stat().st_mtime, command)
            for run_id, run in zip(ids, found, strict=True)
        ]
        tables = [_tables(path, of_run) for of_run in rows]  # all of them, before the first is written
        for run_id, of_run in zip(ids, tables, strict=True):
            for name in TABLES:  # runs last: it marks the run as done
                write_table(folder.table(name, run_id), of_run[name])
    cases = [case for run in found for case in run.cases]
    bad = sum(case.status is not Status.OK for case in cases)
    notes = tuple(dict.fromkeys(note for run in found for note in run.notes))
    return Imported(form.name, len(found), len(cases), bad, notes)


def _tables(path: Path, rows: dict[str, list[Row]]) -> dict[str, pa.Table]:
    """The rows as Arrow; DataError, naming the file, where a number fits no table."""
    try:
        return {name: schema.table(name, found) for name, found in rows.items()}
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _only_imported(folder: CampaignFolder) -> None:
    """Raise UsageError where the campaign holds runs of this suite: one more stack there helps nobody.

    Also where it holds what cannot be read, and might be such runs.
    """
    files = folder.parquet_files("runs")
    if damaged := readable.unreadable(files):
        raise UsageError(
            f"{damaged[0]} cannot be read, so nothing tells whose runs campaign {folder.name!r} holds; "
            "remove or restore that file, then import again"
        )
    held = sum(1 for _ in readable.rows(files, ["run_id"]))
    imported = sum(str(row["command"]).startswith(IMPORTED) for row in readable.rows(files, ["command"]))
    if folder.journals() or imported < held:
        raise UsageError(
            f"campaign {folder.name!r} holds measurements of this suite, and results of other tools are "
            "never compared with them; name another campaign with --campaign"
        )


def _stack_of(folder: CampaignFolder, run_id: str) -> str:
    """The stack of a run that the campaign holds, "" where it holds none such."""
    # Of results elsewhere each merge has a name of its own, which begins so.
    names = folder.parquet_files("runs")
    files = [path for path in names if path.stem == run_id or path.stem.startswith(MERGED)]
    own = (str(row["stack"]) for row in readable.rows(files, ["run_id", "stack"]) if row["run_id"] == run_id)
    return next(own, "")


def _rows(
    run_id: str, campaign: str, stack: str, run: FoundRun, started: float, command: str
) -> dict[str, list[Row]]:
    keys = {
        "run_id": run_id,
        "campaign": campaign,
        "stack": stack,
        "arm": stack,
        "round": "",
        "device": "cuda",
    }
    cases = [{**keys, **_case_row(run, case, place)} for place, case in enumerate(run.cases)]
    samples = [
        {**row, "sample": i, "seconds": seconds, "flags": ""}
        for row, case in zip(cases, run.cases, strict=True)
        for i, seconds in enumerate(case.seconds)
    ]
    return {
        "samples": [dict(row) for row in samples],
        "cases": cases,
        "runs": [{**keys, **_run_row(run, started, command)}],
    }


def _case_row(run: FoundRun, found: FoundCase, position: int) -> Row:
    case = Case(run.family, found.op, dict(found.params))
    return {
        "family": case.family,
        "op": case.op,
        "case_id": case.case_id,
        "params": case.params_json,
        "metric": case.metric,
        "timing": found.timing,
        "policy": run.policy,
        "calls": found.calls,
        "world_size": found.world_size,
        "margin": run.margin,
        "status": found.status,
        "reason": found.reason,
        "position": position,
        "n_samples": len(found.seconds),
        "n_flagged": 0,
        "turns": "",
        "flop": found.flop,
        "nbytes": found.nbytes,
        "warmup_calls": found.warmup_calls,
        "warnings": [],
        "quantities": dict(found.quantities),
        "facts": dict(found.facts),
    }


def _run_row(run: FoundRun, started: float, command: str) -> Row:
    gpu = {"gpu.name": run.gpu_name} if run.gpu_name else {}
    return {
        "position": 0,
        "policy": run.policy,
        "command": command,
        "suite_version": __version__,
        "host": run.host,
        "gpu_name": run.gpu_name,
        "mig": "",
        "started_at": started,
        "ended_at": run.ended_at or started,
        "complete": run.complete,
        "exit_code": 0,
        "stack_identity": dict(run.stack),
        "driver_identity": dict(run.driver),
        "machine_identity": {**run.machine, **gpu},
        "settings": dict(run.settings),
        "quantities": {},
    }
