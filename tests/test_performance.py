"""What `make bench-self` writes: the stopping rules it replays, and the page it makes of its figures."""

import numpy as np
import pytest
from performance import __main__ as page
from performance import verdict_time
from performance.figures import Figure, Part, milliseconds
from performance.verdict_time import Recorded

STEADY = np.full(50, 1e-3)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_pytest_benchmark_samples_for_a_second_and_five_rounds_at_least(rng: np.random.Generator) -> None:
    assert verdict_time.pytest_benchmark(STEADY, rng).samples == 1000
    assert verdict_time.pytest_benchmark(np.full(5, 0.7), rng).seconds == pytest.approx(3.5)
    assert verdict_time.pytest_benchmark(np.full(5, 1e-6), rng).samples == 200_000  # rounds of 5 us


def test_nvbench_stops_at_half_a_second_when_there_is_no_noise(rng: np.random.Generator) -> None:
    assert verdict_time.nvbench(STEADY, rng).samples == pytest.approx(500, abs=1)
    assert verdict_time.nvbench(np.full(5, 0.3), rng).samples == 10


def test_nvbench_goes_on_until_the_noise_is_steady(rng: np.random.Generator) -> None:
    """1 % of noise never falls below 0.5 %; what it has been at over 512 samples soon varies by 5 %."""
    noisy = rng.normal(0.01, 0.0001, 400)
    found = verdict_time.nvbench(noisy, rng)
    assert 64 < found.samples < 1000
    assert found.seconds == pytest.approx(0.01 * found.samples, rel=0.01)


def test_longer_sampling_takes_the_noise_inside_a_process_off_the_spread(rng: np.random.Generator) -> None:
    """Runs that differ by the noise of their samples alone: the more samples, the fewer pairs."""
    runs = tuple(1e-3 * np.exp(rng.normal(0, 0.1, 15)) for _ in range(40))
    spread = float(np.sqrt(2) * np.std([np.log(np.median(run)) for run in runs]))
    case = Recorded("a", "f", runs, {"default": 0.02}, spread)
    ours, theirs = verdict_time.ours(case, "default"), verdict_time.theirs(case, verdict_time.nvbench, rng)
    assert theirs.pairs < ours.pairs / 4
    assert ours.seconds == 2 * ours.pairs * 0.02


def test_a_missed_target_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys) -> None:
    figures = (Figure("short", 0.001, 0.03, milliseconds), Figure("long", 0.05, 0.03, milliseconds))
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    for module in (page.harness, page.verdict_time, page.reading):
        monkeypatch.setattr(module, "part", lambda *_: Part("Title", "Says.", figures))
    assert page.main() == 0
    text = (tmp_path / "page.md").read_text()
    assert text.count("## Title") == 3
    assert "| short | 1.0 ms | at most 30.0 ms |  |" in text
    assert "| long | 50.0 ms | at most 30.0 ms | missed |" in text
    assert "missed" in capsys.readouterr().out
