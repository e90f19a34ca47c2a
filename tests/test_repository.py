"""Promises about the repository itself: its size, its commands, its words."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bench_lib.model import MEASURE_VERSION

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


def test_every_make_command_of_the_first_pages_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [(ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md")]
    named = {word for page in pages for word in re.findall(r"^make ([a-z-]+)(?: +#.*)?$", page, re.MULTILINE)}
    assert {"bench", "test", "dist"} <= named <= targets


def test_the_first_look_of_the_readme_reaches_pytest():
    (line,) = re.findall(r"`make (bench ARGS=\S+)`", (ROOT / "README.md").read_text())
    command = ["make", "--dry-run", "--no-print-directory", *line.split()]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert made.endswith("pytest benchmarks --benchmark-json=results/local/run.json --quick\n")


@pytest.mark.parametrize("goal", ["bench", "report", "test", "dev"])
@pytest.mark.parametrize("there", [False, True])
def test_an_older_python_is_told_before_pip_is_asked(tmp_path, goal, there):
    venv = tmp_path / ".venv"
    old = venv / "bin/python" if there else tmp_path / "python"
    old.parent.mkdir(parents=True, exist_ok=True)
    patch = "import sys; sys.version_info = (3, 10, 13); exec(sys.argv[2])"
    old.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{patch}' \"$@\"\n")
    old.chmod(0o755)
    python = sys.executable if there else old
    # Under `make test` this is a make below another one, which would name its folder.
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), goal, f"PYTHON={python}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found, again = ("3.10.13 in .venv", f"clean {goal}") if there else ("3.10.13", goal)
    assert done.stderr.splitlines()[0] == (
        f"Python 3.11 or newer is needed, found {found}; give another: make {again} PYTHON=python3.12"
    )
    assert (done.returncode, done.stdout, venv.exists()) == (2, "", there)


def test_what_the_example_leaves_is_ignored():
    (left,) = re.findall(r'default=Path\("(\S+)"\)', (ROOT / "docs/examples/train_ddp.py").read_text())
    names = (ROOT / ".gitignore").read_text().splitlines()
    assert {left, str(Path(left).with_suffix(".new"))} <= set(names)


def test_every_family_page_measures_into_a_campaign_of_its_own():
    """A campaign has one plan: the second page tried would be refused the campaign of the first."""
    used: dict[str, str] = {}
    for page in sorted((ROOT / "docs/families").glob("*.md")):
        for name in set(re.findall(r"cuda-gains run .*--campaign (\S+)", page.read_text())):
            assert used.setdefault(name, page.name) == page.name, name


def test_ci_runs_the_readme_test_command():
    assert "make test" in (ROOT / ".ci/run").read_text()


def test_every_measure_version_has_its_line_in_the_changelog():
    told = re.findall(r"^- `measure_version` (\d+): ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sorted(map(int, told)) == list(range(1, MEASURE_VERSION + 1))


def test_hooks_and_make_lint_run_the_same_tools():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    lint = (ROOT / "Makefile").read_text().split("lint:")[1].split("\n\n")[0]
    for hook in hooks:
        tool, *asked = hook["entry"].removeprefix(".venv/bin/").split()
        assert " ".join([f"$(BIN)/{tool}", *(word for word in asked if word != "--force-exclude")]) in lint
