"""Promises about the repository itself: its size, its commands, its words."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MIB = 1 << 20


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def test_tracked_files_stay_small():
    assert sum(path.stat().st_size for path in tracked()) < 16 * MIB


def test_local_results_are_ignored():
    assert "results/local/" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_make_command_of_the_readme_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)$", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"bench", "test"} <= named <= targets


def test_ci_runs_the_readme_test_command():
    assert "make test" in (ROOT / ".ci/run").read_text()
