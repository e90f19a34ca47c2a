"""pytest-benchmark, shown our samples through its documented surface; and the JSON file it writes.

Its fixture is given a clock that moves only by measured time, then the samples are replayed: table,
--benchmark-json, --benchmark-save and --benchmark-compare then hold them bit for bit.
"""

import contextlib
import json
import platform
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_benchmark

from bench_lib.errors import UsageError
from bench_lib.faults.seals import digest, finite
from bench_lib.journaling.journal_rows import Row
from bench_lib.model import Case, Series
from bench_lib.schema import SCHEMA_VERSION

KEY = "cuda_gains"
NO_RESULTS, INCOMPLETE, OK = "no-results", "incomplete", "ok"


class DeviceClock:
    """A timer for pytest-benchmark that moves only when told; its name is `options.timer`."""

    __name__ = "device_clock"

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Seconds since the last reset."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    def reset(self) -> None:
        """Back to zero: from zero, the difference of two readings is the sample, bit for bit."""
        self._now = 0.0


class NotTimed(Exception):
    """Raised inside pytest-benchmark's timed call for a case without samples, so that it has no row."""


def mark(item: pytest.Item, clock: DeviceClock, group: str) -> None:
    """Hand the clock over with the documented marker, the item's own `benchmark` marker merged in.

    pytest-benchmark reads the closest marker only. Without a group of its own an item is shown in the
    table of its op.
    """
    own = item.get_closest_marker("benchmark")
    merged = {"group": group, **(own.kwargs if own else {}), "timer": clock}
    arguments = own.args if own else ()
    item.add_marker(pytest.mark.benchmark(*arguments, **merged), append=False)


def replay(benchmark: Any, clock: DeviceClock, seconds: Sequence[float]) -> None:
    """Show the samples to pytest-benchmark's fixture."""
    values = iter(seconds)
    benchmark.pedantic(
        lambda: clock.advance(next(values, 0.0)),
        setup=clock.reset,
        rounds=len(seconds),
        iterations=1,
        warmup_rounds=0,
    )


def replay_nothing(benchmark: Any) -> None:
    """Tell pytest-benchmark's fixture that there is no sample: no row, and no warning about that."""

    def fail() -> None:
        raise NotTimed

    with contextlib.suppress(NotTimed):
        benchmark.pedantic(fail, rounds=1, iterations=1, warmup_rounds=0)


def summary(run: Row | None, cases: Sequence[Row]) -> Row:
    """The suite's own part of the document: the run and its cases, without samples."""
    complete = bool(run and run.get("complete"))
    measured = any(case.get("n_samples") for case in cases)
    status = NO_RESULTS if not measured else OK if complete else INCOMPLETE
    rows = [{k: v for k, v in case.items() if k not in ("seconds", "flags")} for case in cases]
    runs = [run] if run else []
    return {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "complete": complete,
        "runs": runs,
        "cases": rows,
    }


def put(document: dict[str, Any], ours: Row, bad: Collection[str]) -> None:
    """Put our part into pytest-benchmark's document, and take out the rows of cases that are not ok."""
    rows = document.get("benchmarks", [])
    document["benchmarks"] = [row for row in rows if row.get("fullname") not in bad]
    document[KEY] = ours
    for key, value in document.items():
        document[key] = finite(value)  # NaN is no JSON
    known = document[KEY]
    known["sha256"] = digest(known["runs"], known["cases"], document["benchmarks"])


def write_empty(path: Path, ours: Row) -> None:
    """A valid document without benchmarks. Raises OSError."""
    document: dict[str, Any] = {
        "machine_info": {"node": platform.node(), "machine": platform.machine()},
        "commit_info": {},
        "benchmarks": [],
        "datetime": datetime.now(UTC).isoformat(),
        "version": pytest_benchmark.__version__,
    }
    put(document, ours, ())
    path.write_text(json.dumps(document, indent=4) + "\n")


def begin(path: Path) -> Path | None:
    """Move an old file to NAME.old and put an empty document there: what a kill leaves is valid.

    Makes the folders that are missing, as pytest does for --junit-xml, and returns the first of them for
    the run to say: pytest-benchmark would fail for want of them after the last case. Raises UsageError for
    what is there and no regular file (a folder, a device: it is left alone), OSError when the file cannot
    be written.
    """
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(
            f"--benchmark-json={path} cannot be written: it is {what}; choose another place, a file that "
            "may be replaced"
        )
    missing = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.old"))
    write_empty(path, summary(None, ()))
    return missing[-1] if missing else None


def extra_info(case: Case, series: Series, device: str) -> Row:
    """What stands beside a row: which case it is, how it was timed, which samples are doubtful."""
    shown: Row = {
        "case_id": case.case_id,
        "timing": series.timing,
        "calls": series.calls,
        "device": device,
        "quantities": dict(series.quantities),
    }
    if any(series.flags):
        shown["flags"] = list(series.flags)
    return {key: finite(value) for key, value in shown.items()}
