"""The charts of managed memory show the medians of the runs, and what was compared."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import synthetic
from figures import assert_readable, in_one_line

from bench_lib.comparing import compare, sides
from bench_lib.comparing.replicates import replicates
from bench_lib.comparing.store import Data
from bench_lib.drawing.memory_charts import exchange, migration
from bench_lib.errors import UsageError
from bench_lib.model import Case, Timing, Work

MIB = 1 << 20
RATES = {"faults": 7e9, "prefetch": 50e9, "pinned": 55e9, "pageable": 10e9}  # bytes a second
Timed = tuple[Case, float, float | None]


def write(results: Path, runs: int, cases: Iterable[Timed]) -> Data:
    made = (
        synthetic.SyntheticCase(case, seconds, timing=Timing.HOST, work=Work(nbytes=nbytes))
        for case, seconds, nbytes in cases
    )
    return synthetic.write_here(results, "memory", runs, made)


def move(
    direction: str, way: str, nbytes: int, order: str = "sequential", advise: str = "none", pace: float = 1.0
) -> Timed:
    params = {"direction": direction, "way": way, "order": order, "advise": advise, "access": "write"}
    seconds = pace * nbytes / RATES.get(way, 1e12)
    case = Case("unified_memory", "migrate", {**params, "nbytes": nbytes, "mode": "uvm"})
    return case, seconds, None if advise == "accessed_by" else nbytes  # as no page moves


def moves() -> Iterable[Timed]:
    for direction in ("to_gpu", "to_cpu"):
        for way in RATES:
            yield from (move(direction, way, nbytes * MIB) for nbytes in (2, 256))
        yield move(direction, "second_touch", 256 * MIB)
    yield move("to_gpu", "faults", 256 * MIB, order="random", pace=2.0)
    yield move("to_gpu", "faults", 256 * MIB, advise="accessed_by", pace=0.5)


def swaps() -> Iterable[Timed]:
    for way, seconds in (("faults", 0.12), ("prefetch", 0.08), ("pinned", 0.04)):
        for metric, passes in (("exchange", 0.0), ("step", 0.02)):
            params = {"way": way, "metric": metric, "mode": "uvm"}
            yield Case("unified_memory", "param_swap", params), seconds + passes, None
    yield Case("unified_memory", "fault", {"order": "random", "metric": "fault", "mode": "uvm"}), 2e-5, None


def curve(figure, panel: int, label: str) -> list[float]:
    (line,) = [line for line in figure.axes[panel].get_lines() if line.get_label() == label]
    return list(line.get_ydata())


@pytest.mark.parametrize("runs", [1, 4])
def test_bandwidth_by_size_of_every_way_and_both_directions(tmp_path, runs):
    data = write(tmp_path, runs, moves())
    figure = migration(data)
    assert [axes.get_title(loc="left").split(".")[0] for axes in figure.axes] == [
        "From the CPU to the GPU",
        "From the GPU to the CPU",
    ]
    assert curve(figure, 0, "prefetch") == pytest.approx([50, 50], rel=0.03)
    assert curve(figure, 1, "copy from or to pageable memory") == pytest.approx([10, 10], rel=0.03)
    assert curve(figure, 0, "faults, random") == pytest.approx([3.5], rel=0.03)
    assert "SetAccessedBy" not in in_one_line(figure)
    assert not [line for line in figure.axes[0].get_lines() if "accessed_by" in str(line.get_label())]
    values = replicates(data).values
    pinned = values[values["params"].str.contains('"pinned"') & values["params"].str.contains("to_gpu")]
    large = pinned[pinned["params"].str.contains(str(256 * MIB))]["value"]
    assert curve(figure, 0, "copy from or to pinned memory")[1] == 256 * MIB / large.median() / 1e9
    assert max(curve(figure, 0, "copy from or to pinned memory")) < figure.axes[0].get_ylim()[1] < 100
    dots = [line for line in figure.axes[0].get_lines() if line.get_marker() == "."]
    assert {len(line.get_ydata()) for line in dots} == ({4} if runs > 1 else set())
    assert re.search(r"256 MiB to the GPU: (6\.9|7)\S* GB/s by page faults, \d+", in_one_line(figure))
    assert ("Medians of 4 runs" if runs > 1 else "1 run.") in in_one_line(figure)
    assert_readable(figure)


def bars(figure, panel: int) -> dict[str, float]:
    axes = figure.axes[panel]
    names = [label.get_text() for label in axes.get_xticklabels()]
    return dict(zip(names, (bar.get_height() for bar in axes.patches), strict=True))


def test_the_exchange_is_compared_with_pinned_copies(tmp_path):
    figure = exchange(write(tmp_path, 3, swaps()))
    expected = {"by page faults": 0.12, "by prefetch": 0.08, "by pinned copies": 0.04}
    assert bars(figure, 0) == pytest.approx(expected, rel=0.03)
    assert bars(figure, 1)["by prefetch"] == pytest.approx(0.10, rel=0.03)
    assert bars(figure, 2) == pytest.approx({"random": 2e-5}, rel=0.03)
    side = sides.whole_stack(None, "memory", tmp_path)
    rows = compare.contrast(side, "way", "pinned", "faults").cases
    (row,) = [row for row in rows if row.metric == "exchange"]
    assert f"{row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}]" in in_one_line(figure)
    assert "[95 % interval]" in in_one_line(figure)
    assert_readable(figure)


def test_with_one_run_and_no_pinned_copy_there_is_a_ratio_to_prefetch_without_interval(tmp_path):
    kept = [one for one in swaps() if one[0].params.get("way", "") in ("faults", "prefetch")]
    figure = exchange(write(tmp_path, 1, kept))
    assert len(figure.axes) == 2
    assert "its ratio to that by prefetch; intervals need 3 runs." in in_one_line(figure)
    assert "[" not in in_one_line(figure)
    assert_readable(figure)


@pytest.mark.parametrize(
    ("draw", "cases"), [(migration, swaps()), (exchange, moves())], ids=["migration", "exchange"]
)
def test_what_was_not_measured_is_not_drawn(tmp_path, draw, cases):
    with pytest.raises(UsageError, match="measure the family unified_memory"):
        draw(write(tmp_path, 1, cases))
