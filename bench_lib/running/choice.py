"""Which of the items that pytest collected are measured, and in which order."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from bench_lib.errors import UsageError
from bench_lib.running import ending, selection
from bench_lib.running.options import Options, Task

NAME = "cuda-gains"  # of the plugin, and of what a worker of pytest-xdist says
_STRANGE_MARK = re.compile(r"'(\w+)' not found in `markers` configuration option")  # pytest's own words
WITH_XDIST = (
    "benchmarks are selected together with -n: processes side by side disturb each other's times; "
    "run pytest without -n"
)


class Choice:
    """The hooks of collection, and what they found."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.found = False  # whether there were benchmarks among what was collected
        self.lost = ""  # which families nothing is left of, and why
        self.files: dict[str, set[Path]] = {}  # of each family, also those that nothing is measured of

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Under --strict-markers a mistyped mark ends the file: which one was meant is said with it."""
        report = yield
        strange = _STRANGE_MARK.search(str(report.longrepr)) if report.failed else None
        if strange and (said := selection.mistyped_mark(strange[1])):
            report.longrepr = f"{collector.nodeid}: {said}"
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what the options do not ask for, and put the rest in order."""
        if not any(map(selection.is_case, items)):
            return
        if hasattr(config, "workerinput"):  # xdist: the controller ends the session, see below
            config.workeroutput[NAME] = True  # type: ignore[attr-defined]
            items.clear()
            return
        self.found = True
        with ending.usage_errors():
            task, asked = Task.of_environment(), self._options
            if asked.quick and asked.full:
                raise UsageError("--quick and --full exclude each other; give one of them")
            selection.check_marks(filter(selection.is_case, items), config.getini("markers"))
            self.files = selection.files(items)
            kept = selection.select(
                items, asked.families, asked.quick, asked.full, soak=bool(asked.soak_minutes)
            )
            self.lost = selection.not_core(items, asked.families) if asked.quick else ""
            kept = [item for item in selection.shuffled(kept, task.seed) if item.nodeid not in task.skip]
            cases = [item for item in kept if selection.is_case(item)]
            selection.check(cases)
            if not (cases or self.lost or task.skip):
                self.lost = selection.not_named(items, asked.families)
        dropped = [item for item in items if item not in set(kept)]
        if dropped:
            config.hook.pytest_deselected(items=dropped)
        items[:] = kept

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist has ended, and had found benchmarks."""
        if getattr(node, "workeroutput", {}).get(NAME):
            raise pytest.UsageError(WITH_XDIST)
