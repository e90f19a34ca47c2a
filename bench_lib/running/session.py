"""One run: its journal, the case in flight, and the files at its end. Knows no hook."""

import dataclasses
import os
import shutil
import sys
import time
import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

from bench_lib.device.telemetry import host_clock_resolution
from bench_lib.errors import CudaGainsError, Refused, UsageError
from bench_lib.identity import libraries, probe, promises
from bench_lib.journaling import held, journal
from bench_lib.journaling.journal_rows import rows
from bench_lib.model import Case, Measurement, RunInfo, Status
from bench_lib.observing import ranges
from bench_lib.observing.settings import NVTX
from bench_lib.places import look
from bench_lib.running import bench_json, doubts, ending
from bench_lib.running.bench import Bench, Conditions
from bench_lib.running.doubts import Doubts
from bench_lib.running.flight import InFlight
from bench_lib.running.options import Options, Task
from bench_lib.running.target import Target
from bench_lib.stacking import cache, family_code, stacks
from bench_lib.stacking.stacks import StackEntry

_LEAST_FREE_NBYTES = 16 << 20


class Run:
    """A run from its first line to its files."""

    def __init__(self, options: Options, task: Task, target: Target) -> None:
        self.options = options
        self.task = task
        self.target = target
        self.current: InFlight | None = None
        self.statuses: dict[str, tuple[Status, str]] = {}  # by node id, in the order measured
        self.broken = ""  # why nothing more can be written
        self.dead = ""  # why the CUDA context cannot be used any more
        self.mismatch = ""  # which version the stack declares, and which was loaded instead
        self.files: held.Files = {}  # of the families that are measured
        self.doubts = Doubts()  # about the stack on this machine, before the first case
        self.made: Path | None = None  # the first folder that --benchmark-json wanted and that was not there
        self.unkept = ""  # why the last case, though it ended well, is written as failed
        self.expected = 0
        self.where = str(options.folder.path)  # the files of the campaign
        self._journal: journal.Journal | None = None
        self._loaded: Any = None
        self.ranges = ranges.NONE
        self.summary = bench_json.summary(None, ())  # this suite's part of the JSON file

    @cached_property
    def stack(self) -> StackEntry:
        """The stack's entry; UsageError for an unknown one."""
        return stacks.stack(self.options.stack)

    @property
    def order_seed(self) -> int:
        """The seed for orders drawn inside a case: the campaign's, else one of this run."""
        return self.task.seed or int(uuid.uuid5(uuid.NAMESPACE_OID, self.task.run_id).int % 2**32)

    @cached_property
    def conditions(self) -> Conditions:
        """What the cases are measured with."""
        target = self.target
        return Conditions(
            target.device, self.options.policy, target.telemetry, target.gpu, lambda: target.opened
        )

    def put(self) -> None:
        """The run's files go where they belong. Raises Unreachable, with what to do; nothing is lost."""
        from bench_lib.places import writing  # with what it needs: after all that is measured

        writing.put(self.options.address, self.options.campaign)
        self.where = f"{self.options.address}/{self.options.campaign}"

    @property
    def path(self) -> Path:
        """Where the run's row lies once it has ended."""
        return self.options.folder.table("runs", self.task.run_id)

    def begin(self, expected: int, files: held.Files) -> None:
        """Open everything that is written to, so that what is wrong is known before the first case.

        `expected`: how many cases; `files`: of their families. Raises UsageError, Refused, or OSError.
        """
        folder, _ = self.options.folder, self.stack  # both may be wrong names
        cache.require_folder(self.options.wheels)
        if self.options.address.url:
            look.require(self.options.address.url)
        self.target.check()
        held.require_alike(folder, self.target.device, self.target.detected.reason)
        held.require_same_code(folder, files, planned=bool(self.task.round))
        self.files = files
        self.doubts = doubts.look(self.stack, self.options, self.target)
        self.ranges = ranges.find() if self.options.nvtx else ranges.NONE
        self.target.lock()
        if self.options.json is not None:
            self.made = bench_json.begin(self.options.json)
        self.expected = expected
        folder.path.mkdir(parents=True, exist_ok=True)
        _check_room(folder.path)
        self._journal = journal.Journal(folder.journal(self.task.run_id))
        try:
            self._journal.run(self._info(), probe.suite_commit())
            self._identify({})
            if self.mismatch:
                raise Refused(self.mismatch)
        except (OSError, CudaGainsError):
            self._discard()
            raise

    def _info(self) -> RunInfo:
        task, options = self.task, self.options
        return RunInfo(
            run_id=task.run_id,
            campaign=options.campaign,
            stack=self.stack.name,
            arm=task.arm or self.stack.name,
            round=task.round,
            position=task.position,
            device=self.target.device,
            policy=options.policy.name,
            seed=task.seed,
            command=options.command,
            started_at=time.time(),
        )

    def start(self, case: Case, nodeid: str, margin: float, budget_seconds: float) -> None:
        """A case begins."""
        known = Measurement(
            case,
            Status.FAILED,
            margin=margin,
            position=len(self.statuses),
            nodeid=nodeid,
            started_at=time.time(),
        )
        self.unkept = ""
        self._open.start(known, self.options.policy.name, budget_seconds)
        self.current = InFlight(known, budget_seconds)

    def bench(self) -> Bench:
        """The `bench` of the case in flight."""
        if self.current is None:
            raise UsageError("nothing is measured in this session, so there is no case to measure")
        self.current.bench = Bench(
            self.current.measurement.case, self.current.budget_seconds, self.conditions
        )
        return self.current.bench

    def finish(self) -> None:
        """The case in flight has ended: its line is on disk when this returns. Raises OSError.

        A case that loaded another version than the stack declares has failed; see `mismatch`.
        """
        assert self.current is not None
        flight, self.current = self.current, None
        try:
            measurement = self._kept(flight)
        except OSError:
            self._close()  # half a line may be there: nothing may follow it
            raise
        self.statuses[measurement.nodeid] = (measurement.status, measurement.reason)

    def _kept(self, flight: InFlight) -> Measurement:
        """The measurement as it was written; what cannot be written is a failed case, and `unkept`."""
        try:
            measurement = flight.finished()
            if self._loaded != _loaded():
                self._identify({})
            if self.mismatch:
                measurement = dataclasses.replace(
                    measurement, status=Status.FAILED, reason=self.mismatch, series=None
                )
            self._open.case(measurement, self.options.policy.name)
        except OSError:
            raise
        except Exception as error:  # of what a case left; no part of its line has been written
            if flight.status is Status.OK:
                self.unkept = f"its results cannot be kept: {ending.reason_of(error)}"
            flight.end(Status.FAILED, self.unkept)
            measurement = dataclasses.replace(flight.measurement, status=flight.status, reason=flight.reason)
            self._open.case(measurement, self.options.policy.name)
        return measurement

    def note(self, nodeid: str, text: str) -> None:
        """What was seen after a case had ended is one more of its warnings. Raises OSError."""
        if self._journal is not None:
            self._journal.note(nodeid, text)

    def ok(self) -> set[str]:
        """Node ids of the cases that ended well."""
        return {nodeid for nodeid, (status, _) in self.statuses.items() if status is Status.OK}

    def end(self, exit_code: int) -> None:
        """The session ends: the journal becomes Parquet. Raises OSError or DataError.

        Only a run that measured all its cases has come to its own end; any other is incomplete.
        """
        path = self.options.folder.journal(self.task.run_id)
        if self._journal is not None:
            self._identify(self._quantities())
            if len(self.statuses) == self.expected:
                self._journal.end(exit_code)
            self._close()
        if not self.statuses:
            self._discard()  # no case: no clutter
            return
        tables = rows(journal.read(path))
        self.summary = bench_json.summary(tables["runs"][0], tables["cases"])
        journal.finish(path, self.options.folder)

    def close(self) -> None:
        """Let go of the GPU and the journal."""
        self._close()
        self.target.close()

    @property
    def _open(self) -> journal.Journal:
        assert self._journal is not None
        return self._journal

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _discard(self) -> None:
        self._close()
        self.options.folder.journal(self.task.run_id).unlink(missing_ok=True)

    def _identify(self, quantities: dict[str, float]) -> None:
        self._loaded = _loaded()
        gpu = None if self.dead else self.target.opened
        found = probe.identity(self.stack, gpu, self._settings(), quantities, self.target.detected)
        self._open.identity(found)
        self.mismatch = promises.broken(self.stack, found.stack)

    def _settings(self) -> dict[str, str]:
        found = {
            **self.doubts.stored,
            **self._code,
            "module_loading": os.environ.get("CUDA_MODULE_LOADING", "default").lower(),
        }
        if self.options.nvtx:
            found[NVTX] = self.ranges.maker
        if self.target.opened is not None:
            from bench_lib.device import kernels

            path = kernels.cubin_path(self.target.opened.context, self.options.folder.path)
            if path.exists():
                found["cubin.sha256"] = libraries.sha256(path)
        return found

    @cached_property
    def _code(self) -> dict[str, str]:
        """The code of the benchmark files as the run began; later edits are not what is measured."""
        return family_code.stored(family_code.of_files(self.files))

    def _quantities(self) -> dict[str, float]:
        """What measuring itself costs here, as far as this run has used it."""
        found = {**self.task.quantities, "clock_resolution_seconds": host_clock_resolution()}
        if "bench_lib.device.native" in sys.modules:
            from bench_lib.device import native

            found |= {
                "loop_overhead_seconds": native.overhead(),
                "clock_resolution_seconds": native.clock_resolution(),
            }
        if self.target.opened is not None and not self.dead:
            found["event_pair_overhead_seconds"] = self.target.opened.event_overhead()
        return found


def _loaded() -> object:
    """What decides a stack's identity; it is told anew whenever this changes."""
    return libraries.mapped_now(), probe.python_facts()


def _check_room(folder: Path) -> None:
    free_nbytes = shutil.disk_usage(folder).free
    if free_nbytes < _LEAST_FREE_NBYTES:
        raise UsageError(
            f"{folder} has {free_nbytes >> 20} MiB free, a run needs {_LEAST_FREE_NBYTES >> 20} MiB; "
            "make room there or choose another place with --results"
        )
