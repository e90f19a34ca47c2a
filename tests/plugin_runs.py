"""Real pytest runs of made-up benchmark files, and what they left on disk."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]
INI = """
[pytest]
python_files = bench_*.py test_*.py
python_functions = bench_* test_*
filterwarnings = error
addopts = --strict-markers --import-mode=importlib -p no:cacheprovider
"""
PLUGINS = "pytest_benchmark.plugin,bench_lib.plugin"
HEAD = """
import pytest
from bench_lib.model import Series, Timing, Flag
FAMILY = "made"
MARGIN = 0.03
"""
# A plugin under which managed pages stay away but for their first three ways home.
KEEPS_PAGES = """
from bench_lib.memory.migration import Block

original = Block.home


def skipped(block):
    block.homecomings = getattr(block, "homecomings", 0) + 1
    if block.homecomings < 4:
        original(block)


Block.home = skipped
"""


def rows(campaign: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table of a campaign, file by file."""
    files = sorted((campaign / table).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def run_pytest(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Pytest in a process of its own, at the root of the project: its exit code, and what it printed."""
    words = [*map(str, arguments), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env=env,
        timeout=300,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def run_benchmarks(results: Path, *arguments: object, **variables: str) -> Path:
    """Run files of `benchmarks` in a process of their own; the folder of the campaign that it wrote."""
    _, output = run_pytest(*arguments, "--results", results, env={**os.environ, **variables})
    assert (results / "local" / "cases").is_dir(), output
    return results / "local"


class Runs:
    """A folder with benchmark files, pytest runs in it, and their results."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.path = pytester.path
        # Without the plugins of other packages a run starts in a quarter of the time.
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        monkeypatch.setenv("PYTEST_PLUGINS", PLUGINS)
        pytester.makefile(".ini", pytest=INI)

    def write(self, body: str, name: str = "bench_made", head: str = HEAD) -> None:
        (self.path / f"{name}.py").write_text(head + body)

    def pytest(self, *args: str) -> pytest.RunResult:
        """Run pytest with an end, which is far off: a busy machine takes ten times as long."""
        return self.pytester.runpytest_subprocess(*map(str, args), timeout=300)

    def table(self, name: str, campaign: str = "local") -> list[dict[str, Any]]:
        return rows(self.path / "results" / campaign, name)

    def statuses(self, campaign: str = "local") -> dict[str, str]:
        return {row["case_id"]: row["status"] for row in self.table("cases", campaign)}

    def seconds(self, case_id: str) -> list[float]:
        return [row["seconds"] for row in self.table("samples") if row["case_id"] == case_id]

    def journals(self) -> list[Path]:
        return sorted((self.path / "results").glob("*/journal/*.jsonl"))

    def json(self, name: str = "run.json") -> dict[str, Any]:
        """A JSON file, read as strictly as the standard is."""

        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is no JSON")

        return dict(json.loads((self.path / name).read_text(), parse_constant=refuse))

    def files(self) -> set[str]:
        """Everything that is there apart from the benchmark files themselves."""
        found = {str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file()}
        return {name for name in found if not name.endswith((".py", ".ini", ".pyc", "stdout", "stderr"))}
