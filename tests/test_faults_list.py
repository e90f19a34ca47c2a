"""docs/faults.md names tests that exist and are collected, and `pytest -m torture` tells of each fault."""

import ast
import subprocess
import sys

import pytest
from torture import ROOT, Fault, Torture, faults, key

TESTS = ROOT / "tests"


def tests_of(file: str) -> set[str]:
    """What pytest collects in it: the functions of the module itself that are named so."""
    body = ast.parse((TESTS / file).read_text()).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return {name for name in names if name.startswith("test_")}


def test_every_row_of_the_list_is_a_fault_with_a_test() -> None:
    lines = (ROOT / "docs" / "faults.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| ---", "| fault"))]
    assert len(rows) == len(faults()) > 150
    assert all(one.fault and one.behaviour for one in faults())


@pytest.mark.parametrize("file", sorted({one.file for one in faults()}))
def test_every_test_of_the_list_exists(file: str) -> None:
    assert {one.test for one in faults() if one.file == file} <= tests_of(file)


def test_torture_selects_the_tests_of_the_list_and_no_other() -> None:
    """In two files; that a collection knows the tests of the others is what the test before this one says."""
    files = ["test_guard.py", "test_plugin_faults.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "torture"]
    command += [f"tests/{file}" for file in files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    selected = {key(line) for line in done.stdout.splitlines() if "::" in line}
    listed = {(one.file, one.test) for one in faults() if one.file in files}
    assert selected == listed
    assert {file for file, _ in listed} == set(files)
    assert any(tests_of(file) - {test for _, test in listed} for file in files)


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
