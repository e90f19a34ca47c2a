"""What happens in a pytest session that measures: the run begins, each case is kept, the files are made.

All state of the session is in one object, registered with pytest. It does nothing, and imports
nothing heavy, until selected items use the `bench` fixture.
"""

import contextlib
import gc
import os
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.errors import CudaError, CudaGainsError, NotApplicable, Unavailable, UsageError
from bench_lib.model import Case, Status, nothing_measured
from bench_lib.running import banner, closing, ending, selection
from bench_lib.running.choice import WITH_XDIST, Choice
from bench_lib.running.options import Options, Task
from bench_lib.running.target import Target, clean

if TYPE_CHECKING:
    from bench_lib.ranks.world import World
    from bench_lib.running.bench import Bench
    from bench_lib.running.bench_json import DeviceClock
    from bench_lib.running.session import Run


class Hooks:
    """The session's state and the hooks that need it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        with ending.usage_errors():
            self.options = Options.of(config)
        self.target = Target(self.options.device, self.options.require_gpu)
        self._choice = Choice(self.options)
        config.pluginmanager.register(self._choice)
        self.active = False  # whether this session measures
        self._cases: dict[str, Case] = {}  # by node id
        self._json_written = False
        self._errors: list[BaseException] = []

    @cached_property
    def run(self) -> "Run":
        """The run; made when it is first needed, because that imports what measuring needs."""
        from bench_lib.running.session import Run

        return Run(self.options, Task.of_environment(), self.target)

    @cached_property
    def world(self) -> "World":
        """The ranks of the run; UsageError for a wrong --ranks."""
        from bench_lib.ranks.world import World

        return World(self.options.ranks, os.environ, lambda: self.target.detected.uuid)

    @cached_property
    def _clock(self) -> "DeviceClock":
        from bench_lib.running.bench_json import DeviceClock

        return DeviceClock()

    # --- the run begins

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Begin the run before the first case, if there is one."""
        broken = session.testsfailed and not self.config.getoption("continue_on_collection_errors")
        items = [] if broken else session.items  # pytest ends here where a file could not be collected
        cases = [item for item in items if selection.is_case(item)]
        looking = self.config.getoption("collectonly") or self.config.getoption("setuponly", False)
        if looking:
            return (yield)
        with ending.usage_errors():
            if cases and self.world.follows:
                self.world.follow()
                session.items.clear()
            elif cases:
                self._refuse()
                self.world.gather()
                self._begin(cases)
            elif (self._choice.found or self.options.families) and self.options.json is not None:
                self._begin_json(self.options.json, items)
        return (yield)

    def _begin_json(self, path: Path, items: list[pytest.Item]) -> None:
        """No case is left: an old file goes, so that it is not taken for this session's."""
        from bench_lib.running import bench_json

        if not any("benchmark" in getattr(item, "fixturenames", ()) for item in items):
            bench_json.begin(path)

    def _refuse(self) -> None:
        get = self.config.getoption
        disabled = get("benchmark_disable", False) and not get("benchmark_enable", False)
        if self.options.json and "PYTEST_XDIST_WORKER" in os.environ:  # of a pytest around this one
            raise UsageError(WITH_XDIST)
        if self.options.json and disabled:
            raise UsageError("--benchmark-disable measures nothing for --benchmark-json; give one of them")

    def _begin(self, cases: list[pytest.Item]) -> None:
        from bench_lib.faults.surroundings import Surroundings
        from bench_lib.running import bench_json

        measured = set(map(selection.family, cases))
        files = {family: paths for family, paths in self._choice.files.items() if family in measured}
        self.run.begin(len(cases), files)
        self.active = True
        self.config.pluginmanager.register(Surroundings(self.config, self.run, self._say))
        self._cases = {item.nodeid: selection.case_of(item) for item in cases}
        for item, case in zip(cases, self._cases.values(), strict=True):
            bench_json.mark(item, self._clock, f"{case.family}/{case.op}")
        doubts = (f"cuda-gains: {doubt}" for doubt in self.run.doubts.sentences)
        for line in (*banner.lines(self.run, cases), *doubts):
            self._say(line)

    def _say(self, line: str) -> None:
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(line)

    # --- a case

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """A case: its start in the journal, then all of it, then its end in the journal."""
        if not (self.active and selection.is_case(item)):
            return (yield)
        with self._writing():
            margin, budget = selection.margin(item), selection.budget_seconds(item)
            budget += 60 * self.options.soak_minutes if selection.is_soak(item) else 0.0
            self.run.start(selection.case_of(item), item.nodeid, margin, budget)
        try:
            result = yield
        except BaseException as error:
            self._interrupted(error)
            raise
        with self._writing():
            self.run.finish()
        if self.run.unkept:
            item.session.testsfailed += 1
            self._say(f"cuda-gains: {item.nodeid}: {self.run.unkept}")
        if self.run.mismatch:
            pytest.exit(f"ERROR: {self.run.mismatch}", returncode=pytest.ExitCode.USAGE_ERROR)
        ending.forget(self._errors)
        clean(nextitem is None or nextitem.path != item.path)
        return result

    def _interrupted(self, error: BaseException) -> None:
        """Ctrl-C, pytest.exit: the case in flight counts as not measured.

        A case of a campaign that calls pytest.exit has failed: it would end every new process too.
        """
        if isinstance(error, pytest.exit.Exception) and self.run.task.round and self.run.current:
            self.run.current.end(Status.FAILED, f"pytest.exit was called: {ending.reason_of(error)}")
            with self._writing():
                self.run.finish()
        self.run.current = None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.run.broken = f"the journal cannot be written: {error.strerror}"
            pytest.exit(f"{self.run.broken}; what was measured before is kept", returncode=1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """A case, in its range with --nvtx; then its samples are shown to pytest-benchmark."""
        if not (self.active and selection.is_case(item)):
            return (yield)
        with self.run.ranges.around(selection.case_of(item).case_id):
            result = yield
        self._show(item)
        return result

    def _show(self, item: pytest.Item) -> None:
        from bench_lib.running import bench_json

        bench: Bench = item.funcargs["bench"]  # type: ignore[attr-defined]
        benchmark = item.funcargs["benchmark"]  # type: ignore[attr-defined]
        series = bench.finished()
        benchmark.extra_info.update(bench_json.extra_info(bench.case, series, bench.device))
        bench.shown = True
        bench_json.replay(benchmark, self._clock, series.seconds)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """How a case ended, from what it raised; skips with their reason, errors as one sentence."""
        report = yield
        ours = selection.is_case(item)
        if call.excinfo is None or not (ours or selection.needs_gpu(item)):
            return report
        error = call.excinfo.value
        if isinstance(error, Unavailable | NotApplicable):
            path, line, _ = item.location
            reason = f"Skipped: {ending.text_of(error)}"
            report.outcome, report.longrepr = "skipped", (path, (line or 0) + 1, reason)
        elif isinstance(error, CudaGainsError):
            report.longrepr = ending.text_of(error).lstrip()  # its first line is what pytest sums up
        if self.active and ours:
            self._note_end(item, error, call.when)
        return report

    def _note_end(self, item: pytest.Item, error: BaseException, when: str) -> None:
        flight = self.run.current
        if flight is None:
            return
        self._errors.append(error)
        status, reason = ending.status_of(error), ending.reason_of(error)
        flight.end(status, f"at teardown: {reason}" if when == "teardown" else reason)
        sticky = str(error) if isinstance(error, CudaError) and error.sticky else self.target.dead()
        if sticky:
            self.run.dead = sticky
            item.session.shouldfail = f"the CUDA context is dead ({sticky}); nothing more can be measured"

    # --- the end

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """The journal becomes Parquet, pytest-benchmark writes its JSON, and the GPU is given back."""
        try:
            if self.active:
                self._keep(session, lambda: self.run.end(int(session.exitstatus)))
                self._keep(session, self.run.put)
            with warnings.catch_warnings():
                if self._choice.found:  # pytest-benchmark warns when no case was measured; our report says so
                    warnings.filterwarnings("ignore", "Not saving anything")
                result = yield
            if self.active and self.options.json is not None and not self._json_written:
                self._keep(session, self._write_empty_json)
            for line in closing.lines(self.run, self._cases) if self.active else ():
                self._say(line)  # below the tables of pytest-benchmark, where it is seen
        except OSError as error:  # of pytest-benchmark's own file
            self._failed(session, error)
            return None
        finally:
            gc.unfreeze()
            self.target.close()
            if "world" in vars(self):
                self.world.close()
        return result

    def _write_empty_json(self) -> None:
        from bench_lib.running import bench_json

        assert self.options.json is not None
        bench_json.write_empty(self.options.json, self.run.summary)

    def _keep(self, session: pytest.Session, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:
            self._failed(session, error)

    def _failed(self, session: pytest.Session, error: Exception) -> None:
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        self._say(f"cuda-gains: not all results could be written: {ending.text_of(error)}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Our part of pytest-benchmark's file; of our cases only rows of those that are ok stay."""
        if not self.active:
            return
        from bench_lib.running import bench_json

        bench_json.put(output_json, self.run.summary, self._cases.keys() - self.run.ok())
        self._json_written = True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """How many cases ended how, and where the run lies."""
        if not self.active:
            if self._choice.lost:
                terminalreporter.write_line(f"ERROR: {self._choice.lost}")
            return
        terminalreporter.section("cuda-gains")
        ends = Counter((str(status), reason) for status, reason in self.run.statuses.values())
        for (status, reason), n in ends.items():
            terminalreporter.write_line(f"{n} {status}{f': {reason}' if reason else ''}")
        if (n := len(self.run.statuses)) < self.run.expected:
            terminalreporter.write_line(f"incomplete: {n} of {self.run.expected} cases were measured")
        if said := nothing_measured(ends):
            terminalreporter.write_line(said)
        if self._choice.lost:
            terminalreporter.write_line(self._choice.lost)
        terminalreporter.write_line(f"run {self.run.task.run_id} in {self.run.where}")
