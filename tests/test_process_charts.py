"""The charts of processes show the medians of the runs, and what was compared."""

import re

import pytest
import synthetic
from figures import assert_readable, in_one_line, points

from bench_lib.errors import UsageError
from bench_lib.model import Case, Timing
from bench_lib.process_charts.once import once
from bench_lib.process_charts.sharing import sharing

MIB = 1 << 20
SPEED_UP = {"small_kernels": 1.6, "gemm": 1.1}  # of four clients under MPS


def write(results, runs, cases):
    """Runs of (case, seconds, quantities)."""
    made = (synthetic.SyntheticCase(*one, timing=Timing.HOST, quantities=more) for *one, more in cases)
    return synthetic.write_here(results, "processes", runs, made)


def clients(ways=("time_sliced", "mps")):
    for op, gain in SPEED_UP.items():
        for count in (1, 2, 4):
            for way in ways:
                pace = 1 / (1 + (gain - 1) * (count - 1) / 3) if way == "mps" else 1.0
                for metric, factor in (
                    ("per_request", 1.0),
                    ("latency", count),
                    ("latency_p99", 3.0 * count),
                ):
                    params = {"clients": count, "sharing": way, "metric": metric}
                    yield Case("mps", op, params), 1e-4 * pace * factor, {}


def first_times():
    for loading, factor in (("lazy", 1.0), ("eager", 3.0)):
        for api in ("cudart", "driver"):
            yield once_case("context", factor, 0.2, api=api, loading=loading)
        for library in ("cublas", "cudnn"):
            for metric in ("init", "first"):
                yield once_case("library", factor, 0.1, library=library, loading=loading, metric=metric)
        for work in ("import", "cuda_init", "matmul", "convolution"):
            yield once_case("torch", factor, 0.5, work=work, loading=loading)


def once_case(op, factor, seconds, **params):
    case = Case("module_loading", op, {"metric": "first", **params})
    return case, seconds * factor, {"taken_nbytes": 100 * MIB * factor}


def curve(figure, panel, style="-"):
    """The lines of a panel in the order in which they were drawn."""
    lines = [line for line in figure.axes[panel].get_lines() if line.get_linestyle() == style]
    return [list(line.get_ydata()) for line in lines]


@pytest.mark.parametrize("runs", [1, 4])
def test_throughput_and_latency_by_number_of_clients(tmp_path, runs):
    figure = sharing(write(tmp_path, runs, list(clients())))
    sliced, mps = curve(figure, 0)
    assert sliced == pytest.approx([10_000] * 3, rel=0.03)
    assert mps == pytest.approx([10_000, 12_000, 16_000], rel=0.03)
    _, of_mps = curve(figure, 1)
    assert of_mps == pytest.approx([1e-4, 2e-4 / 1.2, 4e-4 / 1.6], rel=0.03)
    assert curve(figure, 1, ":")[0] == pytest.approx([3e-4, 6e-4, 12e-4], rel=0.03)
    said = in_one_line(figure)
    assert "4 clients under MPS against time-sliced, requests a second: 1." in said
    assert "times in small kernels, 1." in said
    assert ("Medians of 4 runs" if runs > 1 else "1 run.") in said
    dots = [line for line in figure.axes[0].get_lines() if line.get_marker() == "."]
    assert {len(line.get_ydata()) for line in dots} == ({4} if runs > 1 else set())
    assert_readable(figure)


def test_one_way_alone_is_drawn_without_a_finding(tmp_path):
    figure = sharing(write(tmp_path, 2, list(clients(("time_sliced",)))))
    assert "Processes that share a GPU" in in_one_line(figure)
    assert "under MPS" not in in_one_line(figure)
    assert_readable(figure)


def test_first_times_and_the_memory_they_take(tmp_path):
    figure = once(write(tmp_path, 4, list(first_times())))
    seconds, memory = points(figure, 0), points(figure, 1)
    assert len(seconds) == len(memory) == 20
    assert seconds["A context from nothing; CUDA runtime: lazy"] == pytest.approx(0.2, rel=0.03)
    assert seconds["A library by path, in a context; cuBLAS: first call: eager"] == pytest.approx(
        0.3, rel=0.03
    )
    assert memory["torch; first product: eager"] == pytest.approx(300, rel=0.03)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert [name for name in names if name.startswith("cu")] == [
        "cuBLAS: loaded, handle made",
        "cuBLAS: first call",
        "cuDNN: loaded, handle made",
        "cuDNN: first call",
    ]
    assert names[-4:] == ["import", "CUDA started", "first product", "then the first convolution"]
    assert re.search(
        r"take 1\.(5|49) s and 400 MiB with lazy loading, 4\.\d+ s and 1200", in_one_line(figure)
    )
    assert_readable(figure)


def test_without_torch_and_without_nvml_there_is_still_a_chart(tmp_path):
    cases = [(case, seconds, {}) for case, seconds, _ in first_times() if case.op != "torch"]
    figure = once(write(tmp_path, 1, cases))
    assert "What a process pays once, by how its code is loaded" in in_one_line(figure)
    assert "NVML did not tell" in in_one_line(figure)
    assert_readable(figure)


@pytest.mark.parametrize(
    ("draw", "cases"), [(sharing, first_times()), (once, clients())], ids=["mps", "once"]
)
def test_what_was_not_measured_is_not_drawn(tmp_path, draw, cases):
    with pytest.raises(UsageError, match="--family"):
        draw(write(tmp_path, 1, list(cases)))
