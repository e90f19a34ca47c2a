"""pytest hooks around a case: what it changed is put back, what it left is written down, what it prints
has an end, and so has a case that hangs. Registered once a session measures.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.faults import output
from bench_lib.faults.around import Around
from bench_lib.faults.hang import SLACK_SECONDS, Alarm
from bench_lib.running import selection

if TYPE_CHECKING:
    from bench_lib.device.gpu import Gpu
    from bench_lib.running.session import Run

NAME = "cuda-gains-surroundings"


class Surroundings:
    """The hooks; `say` prints a line on the terminal."""

    def __init__(self, config: pytest.Config, run: "Run", say: Any) -> None:
        self._run = run
        self._say = say
        self._around = Around()
        watched = run.task.round or float(config.getini("faulthandler_timeout") or 0) > 0
        self._alarm = None if watched else Alarm()

    @property
    def _gpu(self) -> "Gpu | None":
        return None if self._run.dead else self._run.target.opened

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around all of a case, its line in the journal included."""
        if not selection.is_case(item):
            return (yield)
        self._around.begin(self._gpu)
        if self._alarm is not None:
            self._alarm.start(selection.budget_seconds(item) + SLACK_SECONDS)
        try:
            result = yield
        finally:
            if self._alarm is not None:
                self._alarm.stop()
            notes = self._around.restore()
        self._note(item, [*notes, *self._around.leftovers(self._gpu)])
        return result

    def _note(self, item: pytest.Item, notes: list[str]) -> None:
        """What was seen after the case; where something cannot be put back, a new process goes on."""
        for text in notes:
            self._run.note(item.nodeid, text)
            self._say(f"cuda-gains: {item.nodeid}: {text}")
        if self._around.stuck and self._run.task.round:
            item.session.shouldstop = f"{item.nodeid}: {self._around.stuck}; a new process goes on"

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """What a fixture of a wider scope sets up is not its first case's doing."""
        if fixturedef.scope == "function":
            return (yield)
        with self._around.wider_fixture(self._gpu):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around the call of a case, inside of what captures its output."""
        if not selection.is_case(item):
            return (yield)
        self._around.before_call()
        try:
            with output.bounded():
                return (yield)
        finally:
            self._around.after_call()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Of what a case has printed a report repeats both ends."""
        report = yield
        if selection.is_case(item):
            report.sections = [(name, output.shortened(text)) for name, text in report.sections]
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Nothing that the session has started outlives it."""
        try:
            return (yield)
        finally:
            self._around.end()
            if self._alarm is not None:
                self._alarm.close()
