"""Every fault of docs/faults.md on a line of its own: what happened, in `pytest -m torture`.

The tests are those of the suite, marked here by their names in that file and never run twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
_ROW = re.compile(r"\| (?P<fault>.+?) \| (?P<behaviour>.+?) \| `(?P<file>[\w/]+\.py)::(?P<test>\w+)` \|")


@dataclass
class Fault:
    """A row of the list, and how its tests ended."""

    fault: str
    behaviour: str
    file: str
    test: str
    outcomes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """ok, FAILED, skipped, or not run."""
        if not self.outcomes:
            return "not run"
        if "failed" in self.outcomes:
            return "FAILED"
        return "ok" if "passed" in self.outcomes else "skipped"


def faults() -> list[Fault]:
    """The rows of docs/faults.md."""
    lines = (ROOT / "docs" / "faults.md").read_text().splitlines()
    return [Fault(**found.groupdict()) for line in lines if (found := _ROW.fullmatch(line))]


def key(nodeid: str) -> tuple[str, str]:
    """File below tests/ and function of a node id."""
    path, _, name = nodeid.partition("::")
    return path.rpartition("tests/")[2], name.partition("[")[0]


class Torture:
    """Marks the tests of the list, and tells how each fault ended when they were asked for."""

    def __init__(self) -> None:
        self._faults = faults()
        self._by_test: dict[tuple[str, str], list[Fault]] = {}
        for one in self._faults:
            self._by_test.setdefault((one.file, one.test), []).append(one)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if key(item.nodeid) in self._by_test:
                item.add_marker(pytest.mark.torture)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for one in self._by_test.get(key(report.nodeid), ()):
                one.outcomes.append(report.outcome)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if "torture" not in (config.getoption("markexpr") or ""):
            return
        terminalreporter.section("faults")
        for line in self._lines():
            terminalreporter.write_line(line)

    def _lines(self) -> Iterator[str]:
        for one in self._faults:
            yield f"{one.verdict:8} {one.fault}: {one.behaviour}"
