"""The journal of a run: one JSON line an event, fsynced before the next; then Parquet, atomically.

A run is written here first, so that kill -9 loses at most the case in flight. `finish` turns the
journal into the three Parquet files of the run, the runs table last: a run without it is not done.

Events: `run` (a RunInfo and the suite's version), `identity` (whenever what is loaded changed; the
last one counts), `start` (a case begins), `case` (a finished case with its samples), `note` (a
warning of a case that has finished), `end`. Each line ends with its checksum.
The process that writes a journal holds a lock on it: a journal nobody holds was left by a dead one.
"""

import contextlib
import dataclasses
import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from bench_lib import __version__, schema
from bench_lib.errors import DataError, UsageError
from bench_lib.faults import seals
from bench_lib.faults.secrets import hidden, secrets
from bench_lib.faults.whole import whole
from bench_lib.journaling.journal_rows import KEYS, Row, rows
from bench_lib.layout import TABLES, CampaignFolder, check_name
from bench_lib.model import MEASURE_VERSION, Identity, Measurement, RunInfo, Status

_FREE_TEXT = ("command", "reason", "text", "warnings", "facts", "settings")  # may repeat a secret


class Journal:
    """An open journal. Each method returns once its line is on disk."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._secrets = secrets(os.environ)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with contextlib.suppress(OSError):  # some shared file systems have no locks: see `is_live`
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def path(self) -> Path:
        """The file written to."""
        return self._path

    def run(self, info: RunInfo, suite_commit: str = "") -> None:
        """The first line: which run this is."""
        suite = {"suite_version": __version__, "suite_commit": suite_commit}
        self._write("run", {**dataclasses.asdict(info), **suite, "measure_version": MEASURE_VERSION})

    def identity(self, identity: Identity) -> None:
        """What is loaded now; written at the start and again whenever it changed."""
        self._write("identity", dataclasses.asdict(identity))

    def start(self, known: Measurement, policy: str, budget_seconds: float) -> None:
        """A case begins. A journal that ends here tells which case the process died in.

        `known`, without a series, is what is known of the case by now (params, margin, position):
        the row that `append_status` completes if the process dies here.
        """
        self._write("start", {**_case_record(known, policy), "budget_seconds": budget_seconds})

    def case(self, measurement: Measurement, policy: str) -> None:
        """A finished case."""
        self._write("case", _case_record(measurement, policy))

    def note(self, nodeid: str, text: str) -> None:
        """What was seen after a case had ended: one more of its warnings."""
        self._write("note", {"nodeid": nodeid, "text": text})

    def end(self, exit_code: int) -> None:
        """The run came to its own end."""
        self._write("end", {"exit_code": exit_code})

    def close(self) -> None:
        """Close the file; nothing is pending."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, event: str, record: Mapping[str, Any]) -> None:
        told = {name: hidden(record[name], self._secrets) for name in _FREE_TEXT if name in record}
        _write_line(self._fd, event, {**record, **told})


def _write_line(fd: int, event: str, record: Mapping[str, Any]) -> None:
    data = seals.line({"event": event, "at": time.time(), **record})
    while data:  # a disk that fills up may take a part only
        data = data[os.write(fd, data) :]
    os.fsync(fd)


def _case_record(measurement: Measurement, policy: str) -> Row:
    case, series = measurement.case, measurement.series
    record: Row = {
        "family": case.family,
        "op": case.op,
        "policy": policy,
        "case_id": case.case_id,
        "params": case.params_json,
        "metric": case.metric,
        "status": measurement.status,
        "reason": measurement.reason,
        "margin": measurement.margin,
        "position": measurement.position,
        "nodeid": measurement.nodeid,
        "started_at": measurement.started_at,
        "wall_seconds": measurement.wall_seconds,
        "world_size": measurement.world_size,
        "measure_version": MEASURE_VERSION,
        "n_samples": 0,
        "n_flagged": 0,
        **dataclasses.asdict(measurement.clocks),
    }
    if series is not None:
        record |= {
            "timing": series.timing,
            "calls": series.calls,
            "turns": series.turns,
            "flop": series.work.flop,
            "nbytes": series.work.nbytes,
            "warmup_calls": series.warmup_calls,
            "warnings": list(series.warnings),
            "quantities": dict(series.quantities),
            "facts": dict(series.facts),
        }
        if measurement.status is Status.OK:
            record["seconds"] = list(series.seconds)
            record["flags"] = list(series.flags)
            record["n_samples"] = len(series.seconds)
            record["n_flagged"] = sum(bool(flag) for flag in series.flags)
    return record


def read(path: Path) -> list[Row]:
    """The events of a journal, in order. A last line cut off by a crash is left out.

    Raises DataError when it cannot be read, any other line is not an event or not as it was written,
    or the first one is not the `run` event of the run that the file is named after.
    """
    events: list[Row] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    sealed = any(map(seals.is_sealed, lines))
    for number, line in enumerate(lines[:-1], start=1):
        try:
            events.append(seals.record(line, sealed))
        except (ValueError, RecursionError):
            if number == len(lines) - 1:
                break  # the last whole line may hold a block that never reached the disk
            raise DataError(f"{path}: line {number} is not a journal event") from None
    if not events or events[0]["event"] != "run":
        raise DataError(f"{path}: does not begin with a run event; it is not a journal of this suite")
    _check_run(path, events[0])
    return events


def _check_run(path: Path, run: Row) -> None:
    if missing := [key for key in KEYS if not isinstance(run.get(key), str)]:
        raise DataError(f"{path}: its run event has no {missing[0]}; it is not a journal of this suite")
    try:
        check_name("run", run["run_id"])
    except UsageError as error:
        raise DataError(f"{path}: {error}") from None
    if run["run_id"] != path.stem:
        raise DataError(
            f"{path}: holds run {run['run_id']!r}, expected the one it is named after; rename or remove it"
        )


def in_flight(events: list[Row]) -> Row | None:
    """The `start` event of the case that was being measured when the journal stopped, if any."""
    last = next((e for e in reversed(events) if e["event"] in ("start", "case", "end")), None)
    return last if last is not None and last["event"] == "start" else None


def is_live(path: Path) -> bool:
    """Whether a process of this machine still writes this journal: it holds a lock on the file.

    True also where the file system has no locks, so that a live journal is never taken for a dead one.
    """
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def append_status(path: Path, status: Status, reason: str) -> Row | None:
    """Record how the case in flight ended in the journal of a dead process; its row, or None."""
    started = in_flight(read(path))
    if started is None:
        return None
    case = {key: value for key, value in started.items() if key not in ("event", "at", "budget_seconds")}
    case |= {"status": status, "reason": reason}
    if isinstance(started.get("at"), int | float):
        case["wall_seconds"] = max(time.time() - started["at"], 0.0)  # the clock may step back
    _append_case(path, case)
    return case


def _append_case(path: Path, case: Row) -> None:
    """Append a case to a dead process's journal; a last line that the crash cut off goes first."""
    whole = path.read_bytes().split(b"\n")[: len(read(path))]
    os.truncate(path, sum(len(line) + 1 for line in whole))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        _write_line(fd, "case", case)
    finally:
        os.close(fd)


def finish(journal: Path, folder: CampaignFolder) -> Path:
    """Write a journal's Parquet files into `folder` and remove the journal; the runs file's path.

    Each file is complete or not there at all, and the journal goes only when all are on disk.
    """
    events = read(journal)
    run_id = str(events[0]["run_id"])
    for name, table_rows in rows(events).items():
        write_table(folder.table(name, run_id), schema.table(name, table_rows))
    journal.unlink()
    return folder.table("runs", run_id)


def write_table(path: Path, data: pa.Table) -> None:
    """Write one Parquet file that is complete or not there at all."""
    with whole(path) as stream:
        pq.write_table(data, stream, compression="zstd", write_page_checksum=True)


assert tuple(schema.SCHEMAS) == TABLES  # runs last: it marks the run as done
