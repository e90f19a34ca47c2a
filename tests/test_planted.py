"""A planted slow-down: more work inside the timed region, found when it is large and not when it is small.

Nothing is made up but the work: the stacks differ in how often a loop of dependent integer operations
turns, and a sample is the time that it took. So the whole measuring path is tested, not the arithmetic.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from plugin_runs import INI

from bench_lib.comparing import stats
from bench_lib.comparing.changes import Change
from bench_lib.device import native

ITERATIONS = 60_000  # about 0.1 ms: shorter than the time slice that a busy machine gives a process
SHORT = 10_000
ROUNDS = 10
PERCENT = (2, 5, 10)
QUIET = {"same", "unclear"}  # an effect within the margin is shown to be small, or nothing is shown
BENCH = """
import os
import pytest
from bench_lib.device import native
FAMILY = "spin"

@pytest.mark.margin(0.02, percent=2)
@pytest.mark.margin(0.05, percent=5)
@pytest.mark.margin(0.10, percent=10)
@pytest.mark.parametrize("percent", {percent})
def bench_loop(bench, percent):
    extra = {{"none": 0.0, "small": percent / 2, "large": 2 * percent + 1}}[os.environ["PLANTED"]]
    turns = round({iterations} * (1 + extra / 100))
    bench.native(lambda: native.spin_cpu(turns), calls=1)
"""


def planted(margin: float, which: str) -> float:
    """How much more work: twice the margin and a point, or half of the margin."""
    return {"none": 0.0, "small": margin / 2, "large": 2 * margin + 0.01}[which]


def cuda_gains(home: Path, *words: str) -> str:
    code = "import sys; from bench_lib.cli import main; sys.argv[0] = 'cuda-gains'; main()"
    command = [sys.executable, "-c", code, *words, "--campaign", "c"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(home / "cache")}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three stacks that differ in nothing but the work they are given."""
    monkeypatch.delenv("CUDA_GAINS_STACKS", raising=False)
    benchmarks, text = tmp_path / "benchmarks", ""
    benchmarks.mkdir()
    for name in ("none", "small", "large"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "activate").write_text(f"export PLANTED={name}\n")
        text += f'[{name}]\nkind = "path"\nfolder = "../{name}"\ndeclared = {{}}\n'
    (benchmarks / "stacks.toml").write_text(text)
    (benchmarks / "pytest.ini").write_text(INI)
    (benchmarks / "bench_spin.py").write_text(BENCH.format(iterations=ITERATIONS, percent=PERCENT))
    return tmp_path


def medians(margin: float, names: Sequence[str], rng: np.random.Generator) -> dict[str, float]:
    """The median time of the loop by its work: samples in turns, so that what else runs here disturbs all."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(101):
        for name in rng.permutation(names):
            turns = round(SHORT * (1 + planted(margin, name.removesuffix("#2"))))
            found[name].append(native.spin_cpu(turns))
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def test_ten_rounds_in_one_process_find_what_is_planted() -> None:
    """The same loop and the same decision without the processes, which take minutes: see below."""
    margin, candidates, rng = 0.10, ("small", "large", "none#2"), np.random.default_rng(1)
    native.spin_cpu(1)  # compiled
    rounds = [medians(margin, ("none", *candidates), rng) for _ in range(ROUNDS)]
    ratios = np.log([[this[name] / this["none"] for this in rounds] for name in candidates])
    floor = stats.spread_floor(np.full(3, native.clock_resolution()), np.full(3, rounds[0]["none"]))
    decided = stats.decide(stats.paired(ratios, floor), np.full(3, margin))
    changes = dict(zip(candidates, decided.change, strict=True))
    assert changes["large"] == Change.SLOWER, ratios
    assert Change.SLOWER not in (changes["small"], changes["none#2"]), ratios


@pytest.mark.slow
def test_ten_rounds_find_what_is_planted(home: Path) -> None:
    """As users measure: one process a stack and round, in random order, beside whatever else runs here."""
    stacks = ("--stack", "none", "--stack", "small", "--stack", "large")
    cuda_gains(home, "run", *stacks, "--rounds", str(ROUNDS), "--device", "cpu")
    for candidate, change in (("large", {"slower"}), ("small", QUIET), ("none#2", QUIET)):
        told = json.loads(cuda_gains(home, "compare", "none", candidate, "--format", "json"))
        assert len(told["cases"]) == len(PERCENT), told
        for row in told["cases"]:
            percent = row["params"]["percent"]
            print(f"{candidate}, margin {percent} %: {row['change']}, n {row['n']}, {row['reason']}")
            assert row["change"] in change, row
            work = 1 + planted(percent / 100, candidate.removesuffix("#2"))
            assert row["low"] * 0.98 < work < row["high"] * 1.02, row  # what was measured is what was planted
