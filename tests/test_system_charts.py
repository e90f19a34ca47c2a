"""The charts of the allocator and of overlap show the medians of the runs, and what was compared."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import synthetic
from figures import assert_readable, in_one_line, points

from bench_lib.comparing.store import Data
from bench_lib.errors import UsageError
from bench_lib.model import Case
from bench_lib.system_charts.allocator import TRACES, allocator, soak
from bench_lib.system_charts.overlap import stream_overlap

GIB = 1 << 30
SHARES = {"native": 1.5, "expandable_segments": 1.01, "cudaMallocAsync": 1.05}
Timed = tuple[Case, float, Mapping[str, float], Mapping[str, str]]


def write(results: Path, runs: int, cases: Iterable[Timed], turns: str = "") -> Data:
    made = (synthetic.SyntheticCase(*one, quantities=more, facts=facts) for *one, more, facts in cases)
    return synthetic.write_here(results, "systems", runs, made, turns=turns)


def replays() -> Iterable[Timed]:
    for trace in TRACES:
        for backend, share in SHARES.items():
            sizes = {"peak_nbytes": 2.0 * GIB, "peak_reserved_nbytes": 2.0 * GIB * share}
            for metric, seconds in (("first", 50e-6), ("again", 5e-6)):
                params = {"trace": trace, "backend": backend, "metric": metric}
                yield Case("allocator", "replay", params), seconds, sizes, {}
        params = {"trace": trace, "backend": "native", "metric": "limited"}
        yield Case("allocator", "limit", params), 60e-6, {"needed_peaks": 1.2}, {}


def soaks() -> Iterable[Timed]:
    for backend, grown in (("native", 1.3), ("expandable_segments", 1.0)):
        params = {"backend": backend, "metric": "soak", "minutes": 30.0}
        facts = {
            "soak.reserved_mib": " ".join(str(round(4096 * (1 + (grown - 1) * i / 9))) for i in range(10))
        }
        yield Case("allocator", "soak", params), 6e-6, {"reserved_growth": grown, "time_growth": 1.1}, facts


def passes() -> Iterable[Timed]:
    for memory, ratio in (("pinned", 1.9), ("pageable", 1.2)):
        for direction in ("to_gpu", "to_cpu"):
            for streams, seconds in (("one", 10e-3), ("two", 10e-3 / ratio)):
                params = {"memory": memory, "direction": direction, "streams": streams}
                yield Case("stream_overlap", "copy_compute", params), seconds, {"overlap_bound": 1.98}, {}


def loaders() -> Iterable[Timed]:
    for workers, seconds in ((0, 32e-3), (1, 30e-3), (4, 8e-3)):
        params = {"workers": workers, "batch": 64, "metric": "batch"}
        yield Case("stream_overlap", "dataloader", params), seconds, {}, {}


@pytest.mark.parametrize("runs", [1, 4])
def test_memory_over_the_peak_and_the_time_of_an_allocation(tmp_path, runs):
    figure = allocator(write(tmp_path, runs, replays()))
    memory, costs = points(figure, 0), points(figure, 1)
    for name in TRACES.values():
        for backend, share in SHARES.items():
            assert memory[f"{name}: {backend}, reserved"] == pytest.approx(share)
            assert costs[f"{name}: {backend}, again"] == pytest.approx(5e-6, rel=0.03)
            assert costs[f"{name}: {backend}, first"] == pytest.approx(50e-6, rel=0.03)
        assert memory[f"{name}: native, needed"] == 1.2
    text = in_one_line(figure)
    assert "native 1.5, expandable_segments 1.01, cudaMallocAsync 1.05 times" in text
    assert ("(1 run)" in text) is (runs == 1)
    assert_readable(figure)


def test_a_soak_is_drawn_over_its_minutes(tmp_path):
    figure = soak(write(tmp_path, 3, soaks()))
    seconds, reserved = (
        [line for line in axes.get_lines() if len(line.get_xdata()) == 10] for axes in figure.axes
    )
    assert len(seconds) == len(reserved) == 6
    assert max(seconds[0].get_xdata()) == pytest.approx(28.5)
    assert sorted({round(float(line.get_ydata()[-1]), 2) for line in reserved}) == [4.0, 5.2]
    assert seconds[0].get_ydata()[0] == pytest.approx(6e-6, rel=0.1)
    text = in_one_line(figure)
    assert "native +30.0% and +10.0%, expandable_segments +0.0% and +10.0%" in text
    assert_readable(figure)


@pytest.mark.parametrize("runs", [1, 4])
def test_two_streams_over_one_and_images_a_second(tmp_path, runs):
    figure = stream_overlap(write(tmp_path, runs, [*passes(), *loaders()], turns="turns"))
    pace = points(figure, 0)
    assert pace["pinned memory to the GPU: measured"] == pytest.approx(1.9, rel=0.03)
    assert pace["pageable memory to the CPU: measured"] == pytest.approx(1.2, rel=0.03)
    assert pace["pinned memory to the CPU: bound"] == 1.98
    rates = [bar.get_height() for bar in figure.axes[1].patches]
    assert rates == pytest.approx([2000, 2133, 8000], rel=0.03)
    names = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert names == ["no worker", "1 worker", "4 workers"]
    assert "A loader's 4 workers over no worker: " in in_one_line(figure)
    assert "times with pinned memory" in in_one_line(figure)
    assert_readable(figure)


@pytest.mark.parametrize(("kept", "panels"), [(passes, 1), (loaders, 1)])
def test_one_half_alone_is_a_chart_too(tmp_path, kept, panels):
    figure = stream_overlap(write(tmp_path, 2, kept(), turns="turns"))
    assert len(figure.axes) == panels
    assert_readable(figure)


@pytest.mark.parametrize(
    ("draw", "cases", "said"),
    [
        (allocator, soaks, "no trace was replayed; measure the family allocator"),
        (soak, replays, "no soak was measured; measure the family allocator with --soak 30"),
        (stream_overlap, replays, "measure it with --family stream_overlap"),
    ],
)
def test_what_was_not_measured_is_not_drawn(tmp_path, draw, cases, said):
    with pytest.raises(UsageError, match=said):
        draw(write(tmp_path, 1, cases()))
