"""What the charts show is what was compared, and every word of it can be read."""

import dataclasses
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from figures import assert_readable, said
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.markers import CARETLEFT, CARETRIGHT

from bench_lib.comparing import compare, sides, store
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.drawing import canvas, case_names, charts, forest_chart, launch_chart
from bench_lib.errors import UsageError
from bench_lib.model import Case

HOSTILE = "launch/$\\frac{x$[a=<script>alert(1)</script>&\n\x1b[31m\u202e,b=\U0001f600\u4e2d]"
RUNTIMES = ("9.2", "11.8", "12.4", "13.0")


def row(
    case_id: str = "launch/op", ratio: float | None = 1.0, half: float = 0.01, change: Change = Change.SAME
) -> CaseChange:
    known = {} if ratio is None else {"ratio": ratio, "low": ratio * (1 - half), "high": ratio * (1 + half)}
    return CaseChange(case_id, "launch", "op", {}, "time", change, "because", n=10, margin=0.05, **known)


def comparison(*cases: CaseChange, canaries: tuple[CaseChange, ...] = ()) -> Comparison:
    return Comparison(
        "old", "new", "demo", True, "rounds", (), "cudart 11.8 -> 12.4", canaries, False, tuple(cases)
    )


def many(count: int) -> list[CaseChange]:
    rng = np.random.default_rng(count)
    return [row(f"launch/op[n={i}]", math.exp(rng.normal(0, 0.05))) for i in range(count)]


def labels(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def lines_at(figure: Figure, y: float) -> list[tuple[list[float], str]]:
    """The marks of one row of a forest: x values and colour."""
    lines = [line for line in figure.axes[0].get_lines() if set(line.get_ydata()) == {y}]
    return [(list(line.get_xdata()), to_hex(line.get_color()).upper()) for line in lines]


def test_a_row_shows_ratio_interval_and_change():
    figure = forest_chart.forest(comparison(row("launch/op", 0.9, 0.02, Change.FASTER)))
    (interval, colour), (point, _) = lines_at(figure, -1)
    assert interval == pytest.approx([0.882, 0.918])
    assert point == [0.9]
    assert colour == canvas.LOOKS[Change.FASTER][0]
    assert "0.900 [0.882, 0.918]  faster" in said(figure)
    assert "new against old: 1 faster, 0 slower" in said(figure)
    assert "Campaign demo: 10 pairs of runs, paired within rounds." in said(figure)


def test_the_margin_of_each_row_is_shaded():
    figure = forest_chart.forest(comparison(row()))
    (band,) = figure.axes[0].collections
    assert sorted(set(band.get_paths()[0].vertices[:, 0])) == pytest.approx([1 / 1.05, 1.05])


def test_canaries_stand_on_top_and_cases_go_from_gain_to_loss():
    cases = [row("launch/slow", 1.2), row("launch/fast", 0.8), row("launch/even", 1.0)]
    figure = forest_chart.forest(comparison(*cases, canaries=(row("canary/spin"),)))
    assert labels(figure)[1] == "canary/spin"
    assert labels(figure)[3:] == ["launch/fast", "launch/even", "launch/slow"]
    assert labels(figure)[0].startswith("Canaries")


def test_a_ratio_is_always_inside_the_axis_even_beside_a_huge_interval():
    cases = [row("launch/a", 1.02, 0.9), row("launch/b", 0.4), row("launch/c", 3.0)]
    figure = forest_chart.forest(comparison(*cases))
    low, high = figure.axes[0].get_xlim()
    assert low < 0.4 < 3.0 < high
    alone = forest_chart.forest(comparison(row("launch/a", 1.0, 0.9999)))
    assert alone.axes[0].get_xlim()[0] > 0.5


def heads(figure: Figure, y: float) -> list[float]:
    """Where the arrowheads of one row of a forest point to."""
    lines = [line for line in figure.axes[0].get_lines() if set(line.get_ydata()) == {y}]
    return [line.get_xdata()[0] for line in lines if line.get_marker() in (CARETLEFT, CARETRIGHT)]


def test_one_case_far_from_the_others_does_not_set_the_axis():
    far = CaseChange(
        "launch/far", "launch", "op", {}, "time", Change.UNCLEAR, "", ratio=4.872, low=1.465, high=16.2
    )
    figure = forest_chart.forest(comparison(*many(30), far))
    low, high = figure.axes[0].get_xlim()
    assert 0.8 < low < 0.95
    assert 1.1 < high < 1.4
    assert heads(figure, -31) == [high]
    assert all(low <= x <= high for xs, _ in lines_at(figure, -31) for x in xs)
    assert "4.872 [1.465, 16.2]  unclear" in said(figure)
    assert "What goes on beyond the axis ends in an arrowhead." in said(figure).replace("\n", " ")


def test_only_an_interval_that_goes_on_has_an_arrowhead():
    wide, others = row("launch/a", 1.0, 0.9999), [row("launch/b", 1.0), row("launch/c", 1.1)]
    figure = forest_chart.forest(comparison(wide, *others))
    assert heads(figure, -1) == list(figure.axes[0].get_xlim())
    assert [heads(figure, y) for y in (-2, -3)] == [[], []]
    assert "arrowhead" not in said(forest_chart.forest(comparison(*others)))


def test_of_many_cases_the_largest_effects_are_drawn_and_it_says_so():
    cases = [*many(200), row("launch/gone", None, change=Change.NOT_COMPARABLE)]
    figure = forest_chart.forest(comparison(*cases))
    shown = labels(figure)[1:]
    effects = {case.case_id: abs(math.log(case.ratio)) for case in cases if case.ratio}
    assert set(shown) == set(sorted(effects, key=effects.get)[-60:])
    assert "The 60 largest effects of 200 cases are drawn." in said(figure).replace("\n", " ")
    assert "1 of 201 have no ratio and are not drawn." in said(figure).replace("\n", " ")


@pytest.mark.parametrize("count", [0, 3, 30, 200])
def test_a_forest_of_any_size_can_be_read(count):
    canaries = tuple(row(f"canary/c{i}") for i in range(count and 4))
    assert_readable(forest_chart.forest(comparison(*many(count), canaries=canaries)))


def test_long_names_lose_nothing_by_which_they_differ():
    shared = "batch=64,direction=forward,layout=channels_last,metric=time"
    named = "cudnn_selection/conv[{},precision={},shape=3x3-256-256-28-depthwise,zeta={}]"
    cases = [
        row(named.format(shared, precision, zeta), 0.9 + zeta / 50)
        for precision in ("fp16", "bf16")
        for zeta in (1, 2)
    ]
    figure = forest_chart.forest(comparison(*cases, canaries=(row("canary/spin[a=1]"),)))
    assert_readable(figure)
    shown = labels(figure)
    assert sum("precision=fp16" in label for label in shown) == 2
    assert sum("zeta=1" in label for label in shown) == 2
    assert "canary/spin[a=1]" in shown
    assert not [label for label in shown if "…" in label or "batch" in label]
    in_words = f"In every case: {shared.replace(',', ', ')}, shape=3x3-256-256-28-depthwise."
    assert in_words in " ".join(said(figure).split())


def test_a_title_is_broken_between_words_or_parameters():
    name = "cudnn_selection/conv_by_path[batch=64,layout=nchw,metric=time,precision=fp32]"
    lines = canvas.fill(f"Mean over {name}", 60).split("\n")
    assert lines == [
        "Mean over cudnn_selection/conv_by_path[batch=64,layout=nchw,",
        "metric=time,precision=fp32]",
    ]
    assert "".join(canvas.fill("W" * 150, 60).split("\n")) == "W" * 150


def test_a_long_name_alone_is_broken_between_two_parameters():
    name = "cudnn_selection/conv[" + ",".join(f"parameter{i}=value{i}" for i in range(6)) + "]"
    figure = forest_chart.forest(comparison(row(name, 0.9)))
    assert_readable(figure)
    first, second = labels(figure)[1].split("\n")
    assert first.endswith(",")
    assert first + second.strip() == name


def test_hostile_and_long_names_are_drawn_as_they_are(tmp_path):
    cases = [row(HOSTILE, 0.9), row("launch/" + "W" * 300, 1.1)]
    made = comparison(*cases)
    made = dataclasses.replace(made, candidate="<b>" + "W" * 500, campaign="W" * 100)
    figure = forest_chart.forest(made)
    assert_readable(figure)
    _, svg = canvas.save(figure, tmp_path, "forest")
    tree = ElementTree.parse(svg)
    assert not [element for element in tree.iter() if element.tag.endswith(("script", "}b"))]
    text = "".join(tree.getroot().itertext())
    assert "launch/$\\frac{x$[a=<script>alert(1)</script>& " in text
    assert "\N{REPLACEMENT CHARACTER}" in text


def test_a_saved_chart_has_its_size_and_is_the_same_each_time(tmp_path):
    for name in ("one", "two"):
        figure = forest_chart.forest(comparison(row(), canaries=(row("canary/spin"),)))
        canvas.save(figure, tmp_path, name)
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    width = int.from_bytes((tmp_path / "one.png").read_bytes()[16:20], "big")
    assert width == int(figure.get_figwidth() * 144)
    assert "launch/op" in (tmp_path / "one.svg").read_text()


def test_drawing_loads_no_pyplot():
    code = "import sys, bench_lib.pages.report; assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- launch cost by runtime


def write_ladder(results: Path, runs: int = 4, factor: float = 0.97) -> None:
    """Runs that time every runtime in turns; 12.4 takes `factor` of the others' time."""
    rng = np.random.default_rng(5)
    arms = {**dict.fromkeys(RUNTIMES, 1.0), "12.4": factor, "11.8#2": 1.0, "driver": 0.95}
    for number in range(runs):
        measured = []
        for burst in (1, 100):
            pace = 3e-6 * np.exp(rng.normal(0, 0.1)) * np.exp(rng.normal(0, 0.02, 50))
            for runtime, scale in arms.items():
                case = Case("ladder", "launch", {"runtime": runtime, "burst": burst, "metric": "submit"})
                seconds = pace * scale * np.exp(rng.normal(0, 0.002, 50))
                made = synthetic.SyntheticCase(case, margin=0.01, calls=burst)
                measured.append(synthetic.measurement(made, seconds, turns=f"ladder-{burst}"))
        info = synthetic.run_info("ladder", "here", started_at=synthetic.EPOCH + number)
        synthetic.write_run(results, info, synthetic.identity(synthetic.Machine()), measured)


def write_rounds(results: Path) -> None:
    measured = [
        synthetic.SyntheticCase(Case("launch", "empty", {"api": api, "metric": metric}), seconds, 0.05)
        for api in ("cudart", "driver")
        for metric, seconds in (("submit", 3e-6), ("launch_sync", 9e-6), ("period", 2e-6))
    ]
    stacks = {"cudart-11.8": 1.0, "cudart-9.2": 1.0, "cudart-12.4": 0.97, "other": 1.0}
    synthetic.write_campaign(results, "rounds", stacks, rounds=4, measured=measured, samples=5)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("charts")
    write_ladder(path)
    write_rounds(path)
    synthetic.write_campaign(path, "plain", {"old": 1.0, "new": 0.9}, rounds=4, samples=5)
    return path


def ticks(figure: Figure, panel: int) -> list[str]:
    return [label.get_text().replace("\n", " ") for label in figure.axes[panel].get_xticklabels()]


def points(figure: Figure, panel: int, label: str) -> dict[str, float]:
    """The points of one legend entry, by the tick they stand at."""
    axes = figure.axes[panel]
    places = dict(zip(axes.get_xticks(), ticks(figure, panel), strict=True))
    (bars,) = [bars for bars in axes.containers if bars.get_label() == label]
    xy = np.column_stack(bars.lines[0].get_data())
    return {places[min(places, key=lambda place: abs(place - x))]: y for x, y in xy}


def test_the_ladder_shows_each_runtime_as_it_was_compared(results):
    figure = launch_chart.launch_by_runtime(store.load(results, ["ladder"]))
    assert len(figure.axes) == 2
    assert ticks(figure, 0) == ["9.2", "11.8", "12.4", "13.0", "11.8 again", "driver only"]
    side = sides.resolve(None, "ladder", results)
    rows = compare.contrast(side, "runtime", "11.8", "12.4").cases
    expected = {row.params["burst"]: row.ratio for row in rows}
    for panel in (0, 1):
        assert points(figure, panel, "bursts of 100")["12.4"] == pytest.approx(expected[100])
        assert points(figure, panel, "single launches")["12.4"] == pytest.approx(expected[1])
    assert expected[100] == pytest.approx(0.97, rel=0.005)
    assert "claim for 12.4: up to 30 % faster" in said(figure)
    assert figure.axes[0].get_ylim()[0] < 0.70
    assert figure.axes[1].get_ylim()[0] > 0.90
    assert_readable(figure)


def test_processes_are_shown_with_every_run(results):
    data = store.load(results, ["rounds"])
    figure = launch_chart.launch_by_runtime(data)
    assert ticks(figure, 0) == ["9.2", "11.8", "12.4", "11.8 again"]
    a, b = (sides.resolve(name, "rounds", results) for name in ("cudart-11.8", "cudart-12.4"))
    compared = {row.metric: row for row in compare.compare(a, b).cases if row.params["api"] == "cudart"}
    for panel, metric in enumerate(("submit", "launch_sync")):
        shown = points(figure, panel, "mean, and its 95 % interval against 11.8")
        assert shown["12.4"] == pytest.approx(compared[metric].candidate)
        dots = [line for line in figure.axes[panel].get_lines() if line.get_marker() == "."]
        assert [len(line.get_ydata()) for line in dots] == [4, 4, 4, 4]
    assert_readable(figure)


def test_ladder_and_processes_share_one_figure(results):
    figure = launch_chart.launch_by_runtime(store.load(results, ["ladder", "rounds"]))
    assert len(figure.axes) == 4
    assert_readable(figure)


def test_without_two_runtimes_there_is_no_such_chart(results):
    with pytest.raises(UsageError, match="fewer than two CUDA runtimes"):
        launch_chart.launch_by_runtime(store.load(results, ["plain"]))


# --- run order


def test_every_run_is_a_dot_in_order_of_time(results):
    a, b = (sides.resolve(name, "plain", results) for name in ("old", "new"))
    data = sides.joined(a, b)
    figure = charts.run_order(compare.compare(a, b), data)
    assert len(figure.axes) == 6
    assert figure.axes[0].get_title(loc="left").startswith("canary/")
    old, new = figure.axes[-1].get_lines()
    assert (old.get_label(), new.get_label()) == ("old", "new")
    assert sorted([*old.get_xdata(), *new.get_xdata()]) == list(range(1, 9))
    order = data.runs.sort_values("started_at")["arm"].tolist()
    assert [order[int(x) - 1] for x in new.get_xdata()] == ["new"] * 4
    assert np.median(new.get_ydata()) / np.median(old.get_ydata()) == pytest.approx(0.9, rel=0.02)
    assert to_hex(old.get_color()).upper() != to_hex(new.get_color()).upper()
    assert "one dot a run; 2023-11-14" in said(figure)
    assert_readable(figure)


def test_a_contrast_has_both_values_in_every_run(results):
    side = sides.resolve(None, "ladder", results)
    figure = charts.run_order(compare.contrast(side, "runtime", "11.8", "12.4"), side.data)
    for axes in figure.axes:
        assert [line.get_label() for line in axes.get_lines()] == ["CUDA runtime 11.8", "CUDA runtime 12.4"]
        assert [sorted(line.get_xdata()) for line in axes.get_lines()] == [[1, 2, 3, 4]] * 2
    assert_readable(figure)


def test_where_the_machine_changes_in_the_order_of_time_is_drawn(tmp_path):
    for seed, gpu in enumerate(("GPU-1", "GPU-2")):
        machine = synthetic.Machine(gpu_uuid=gpu)
        more = {"measured": synthetic.cases(1), "rounds": 1, "seed": seed, "samples": 3, "null": False}
        synthetic.write_campaign(tmp_path, "two", {"old": 1.0, "new": 1.0}, machine=machine, **more)
    a, b = sides.pair("old", "new", "two", tmp_path)
    data = sides.joined(a, b)
    at = data.runs.sort_values("started_at")["gpu_uuid"].to_list()
    figure = charts.run_order(compare.compare(a, b), data)
    lines = [line.get_xdata()[0] for line in figure.axes[0].get_lines() if line.get_linestyle() == ":"]
    assert lines == [i + 0.5 for i in range(1, len(at)) if at[i - 1] != at[i]]
    assert lines
    assert "dotted: another machine" in figure.legends[0].get_title().get_text()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("m/copy[nbytes=67108864,way=a]", "m/copy[nbytes=64 MiB,way=a]"),
        ("m/copy[nbytes=1073741824]", "m/copy[nbytes=1 GiB]"),
        ("m/copy[nbytes=67108865]", "m/copy[nbytes=67108865]"),
        ("m/copy[nbytes=8]", "m/copy[nbytes=8]"),
        ("m/copy[nbytes=0]", "m/copy[nbytes=0]"),
    ],
)
def test_bytes_have_a_unit_where_that_says_the_same(name, shown):
    assert case_names.in_units(name) == shown


def test_arms_of_several_campaigns_are_told_apart_and_sides_by_their_names():
    rows = pd.DataFrame({"campaign": ["before", "after"], "arm": ["here", "here"]})
    assert list(charts.by_side(rows, "before")) == ["after/here", "before/here"]
    assert list(charts.by_side(rows[:1], "before")) == ["here"]
    sided = rows.assign(side=["x.json", "a.json"])
    assert list(charts.by_side(sided, "x.json")) == ["x.json", "a.json"]
    assert list(charts.by_side(sided, "a.json")) == ["a.json", "x.json"]
