"""docs/faults.md names tests that exist and are collected, and `pytest -m torture` tells of each fault."""

import ast
import subprocess
import sys

import pytest
from torture import ROOT, Fault, Torture, faults, key

TESTS = ROOT / "tests"


def functions(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_of_the_list_is_a_fault_with_a_test() -> None:
    lines = (ROOT / "docs" / "faults.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| ---", "| fault"))]
    assert len(rows) == len(faults()) > 150
    assert all(one.fault and one.behaviour for one in faults())


@pytest.mark.parametrize("file", sorted({one.file for one in faults()}))
def test_every_test_of_the_list_exists(file: str) -> None:
    assert {one.test for one in faults() if one.file == file} <= functions(file)


def test_every_test_of_the_list_is_collected() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "torture", "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    collected = {key(line) for line in done.stdout.splitlines() if "::" in line}
    assert {(one.file, one.test) for one in faults()} <= collected


def test_a_fault_is_as_bad_as_its_worst_test() -> None:
    one = Fault("a", "b", "c.py", "d")
    assert one.verdict == "not run"
    for outcome, verdict in (
        ("skipped", "skipped"),
        ("passed", "ok"),
        ("failed", "FAILED"),
        ("passed", "FAILED"),
    ):
        one.outcomes.append(outcome)
        assert one.verdict == verdict
    assert key("tests/gpu/test_x.py::test_y[a::b]") == ("gpu/test_x.py", "test_y")
    assert len(list(Torture()._lines())) == len(faults())
