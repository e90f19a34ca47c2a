"""A bridge of stacks: its steps, what each exchanges, the whole they multiply to, and its waterfall."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import synthetic
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text
from synthetic import Machine, Noise, SyntheticCase
from typer.testing import CliRunner

from bench_lib import cli
from bench_lib.comparing import bridge, sides
from bench_lib.comparing.changes import CaseChange, Change
from bench_lib.drawing import bridge_chart, canvas
from bench_lib.errors import UsageError
from bench_lib.model import Case, Status
from bench_lib.pages import asked, bridge_page, page

STACKS = {"a": 1.0, "b": 0.9, "c": 0.9, "d": 1.08}
TRUTH = (0.9, 1.0, 1.2)  # of its three steps
NAMES = list(STACKS)
RESULTS = Path(__file__).parents[1] / "results"
QUIET = Noise(process_sd=0.002, sample_sd=0.002)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """`whole`: four stacks in rounds. `ends`, `other`: the first and the last, the same or another truth."""
    folder = tmp_path_factory.mktemp("results")
    more = {"noise": QUIET, "samples": 5, "rounds": 6}
    measured = [synthetic.canaries()[0], *synthetic.cases(2), *synthetic.cases(1, family="ladder")]
    synthetic.write_campaign(folder, "whole", STACKS, measured=measured, **more)
    for name, factor in (("ends", 1.08), ("other", 1.3)):
        synthetic.write_campaign(folder, name, {"a": 1.0, "d": factor}, measured=measured, seed=9, **more)
    return folder


@pytest.fixture(scope="module")
def found(results):
    return bridge.bridge(sides.several(NAMES, "whole", results))


def product(line):
    return math.prod(step.ratio for step in line.steps)


# --- steps and the whole ----------------------------------------------------------------------------


def test_each_neighbouring_pair_is_a_step_and_its_component_is_named(found):
    assert [(step.baseline, step.candidate) for step in found.steps] == [("a", "b"), ("b", "c"), ("c", "d")]
    assert [bridge.exchanged(step) for step in found.steps] == [
        "cudart 11.8 -> 12.4",
        "cudart 12.4 -> 12.6",
        "cudart 12.6 -> 13.0",
    ]
    assert (found.whole.baseline, found.whole.candidate, found.campaign) == ("a", "d", "whole")


def test_the_steps_are_found_and_multiply_to_the_whole(found):
    assert len(found.lines) == 3
    for line in (*found.lines, *found.means):
        for step, truth in zip(line.steps, TRUTH, strict=True):
            assert step.ratio == pytest.approx(truth, rel=0.01)
        assert product(line) == pytest.approx(line.whole.ratio, rel=1e-12)
    assert found.exact
    changes = {tuple(step.change for step in line.steps) for line in found.lines}
    assert changes == {(Change.FASTER, Change.SAME, Change.SLOWER)}
    assert found.left_out == ()


def test_means_are_over_all_cases_and_over_each_family(found):
    assert [(mean.name, mean.cases) for mean in found.means] == [
        ("all 3 cases", 3),
        ("ladder", 1),
        ("launch", 2),
    ]
    logs = [math.log(line.whole.ratio) for line in found.lines]
    assert math.log(found.means[0].whole.ratio) == pytest.approx(np.mean(logs))
    for step, truth in zip(found.means[0].steps, TRUTH, strict=True):
        assert step.low < truth * 1.002
        assert step.high > truth * 0.998
        assert step.low < step.ratio < step.high


def test_the_interval_of_a_mean_comes_from_its_rounds():
    """Cases that share their rounds: many of them make the mean's interval no narrower."""
    rng = np.random.default_rng(1)
    shared = rng.normal(0, 0.02, 8)
    rows = [change(f"f/op[i={i}]", shared + rng.normal(0, 1e-4, 8)) for i in range(50)]
    one, many = bridge._mean(rows[:1]), bridge._mean(rows)
    assert math.log(many.high / many.low) == pytest.approx(math.log(one.high / one.low), rel=0.05)


def change(name, log_ratios):
    names = tuple(f"round-{i}" for i in range(len(log_ratios)))
    ratio = float(np.exp(np.mean(log_ratios)))
    row = synthetic_change(name, ratio)
    return dataclasses.replace(row, log_ratios=tuple(map(float, log_ratios)), pairs=names)


def synthetic_change(name, ratio):
    return CaseChange(name, "f", "op", {}, "time", Change.UNCLEAR, "", ratio=ratio, n=8)


def write_rounds(results, lacking):
    """Five rounds of a, b and c; `lacking(stack, round)` is what a run holds of its case instead."""
    rng = np.random.default_rng(4)
    case = SyntheticCase(Case("launch", "op"))
    for number in range(5):
        for stack in "abc":
            seconds = synthetic.times(rng, 1e-4 * (1 + 0.05 * number), Noise(0.05), 5)
            rows = lacking(stack, number, case) if lacking(stack, number, case) is not None else None
            measured = [synthetic.measurement(case, seconds)] if rows is None else rows
            info = synthetic.run_info("demo", stack, round=f"round-{number}", started_at=number)
            known = synthetic.identity(
                Machine(), synthetic.cudart({"a": "11.8", "b": "12.4", "c": "12.6"}[stack])
            )
            synthetic.write_run(results, info, known, measured)


def missing(stack, number, case):
    return [] if (stack, number) == ("b", 2) else None


def failed(stack, number, case):
    if (stack, number) != ("c", 1):
        return None
    return [synthetic.measurement(case, [], status=Status.FAILED, reason="boom")]


@pytest.mark.parametrize("lacking", [missing, failed])
def test_a_round_that_one_stack_lacks_counts_in_no_step(tmp_path, lacking):
    write_rounds(tmp_path, lacking)
    found = bridge.bridge(sides.several(["a", "b", "c"], "demo", tmp_path))
    assert [step.cases[0].n for step in (*found.steps, found.whole)] == [4, 4, 4]
    assert product(found.lines[0]) == pytest.approx(found.lines[0].whole.ratio, rel=1e-12)
    assert found.exact
    assert (
        "launch/op",
        "left out of every step, one of the stacks lacks it there; rounds: 1",
    ) in found.left_out


def test_a_case_that_one_stack_never_measured_keeps_its_other_steps(tmp_path):
    extra = Case("launch", "extra")
    for number in range(4):
        for stack in "abc":
            cases = [Case("launch", "op"), *([extra] if stack != "c" else [])]
            rows = [synthetic.measurement(SyntheticCase(case), [1e-4, 1e-4]) for case in cases]
            info = synthetic.run_info("demo", stack, round=f"round-{number}")
            synthetic.write_run(tmp_path, info, synthetic.identity(Machine()), rows)
    found = bridge.bridge(sides.several(["a", "b", "c"], "demo", tmp_path))
    assert [line.name for line in found.lines] == ["launch/op"]
    assert "launch/extra" in {row.case_id for row in found.steps[0].cases}
    assert ("launch/extra", "has no ratio in one of the steps") in found.left_out


def test_steps_from_different_runs_need_not_multiply_to_the_whole(tmp_path):
    """b is in rounds with a alone, in other ones with c alone: another product than a to c."""
    rng = np.random.default_rng(8)
    for number in range(8):
        for stack in ("a", "b") if number < 4 else ("b", "c"):
            seconds = synthetic.times(rng, 1e-4, Noise(0.05), 5)
            rows = [synthetic.measurement(SyntheticCase(Case("launch", "op")), seconds)]
            info = synthetic.run_info("demo", stack, round=f"round-{number}", started_at=number)
            synthetic.write_run(tmp_path, info, synthetic.identity(Machine()), rows)
    found = bridge.bridge(sides.several(["a", "b", "c"], "demo", tmp_path))
    assert [step.pairing for step in (*found.steps, found.whole)] == ["rounds", "rounds", "unpaired"]
    assert not found.exact
    told = "".join(map(str, bridge_page.sections(found, charts=False)))
    assert "The steps come from different runs, so their product need not be the whole." in told
    assert "'product'" in told


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_two_stacks_are_no_bridge(results, names):
    with pytest.raises(UsageError, match="a bridge needs three stacks or more"):
        bridge.bridge(sides.several(names, "whole", results))


# --- the check --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("campaign", "differing"), [("ends", 0), ("other", 3)])
def test_another_campaign_checks_the_whole(results, campaign, differing):
    found, _ = asked.bridged(NAMES, "whole", results, campaign)
    assert found.differing == differing
    assert all(line.apart for line in found.lines)
    told = "".join(map(str, bridge_page.sections(found, charts=False)))
    assert f"of 3 cases {differing} differ from the whole here by more than chance" in told
    assert "by construction: no check" in told


def test_the_same_runs_are_no_check(results):
    with pytest.raises(UsageError, match="'whole' holds the runs of the bridge; a check needs other ones"):
        asked.bridged(NAMES, "whole", results, "whole")


# --- how it is shown --------------------------------------------------------------------------------


def drawn(figure):
    FigureCanvasAgg(figure).draw()
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_the_waterfall_draws_each_step_from_the_end_of_the_one_before(found):
    figure = bridge_chart.waterfall(found)
    assert len(figure.axes) == 6  # three means and three cases
    bars = [collection.get_paths()[0].get_extents() for collection in figure.axes[0].collections]
    ends = [1.0, 0.9, 0.9, 1.08]
    for bar, start, end in zip(bars, [*ends[:3], 1.0], [*ends[1:], 1.08], strict=True):
        assert bar.x0 == pytest.approx(min(start, end), rel=0.01)
        assert bar.x1 == pytest.approx(max(start, end), rel=0.01)
    low, high = figure.axes[0].get_xlim()
    assert low < 0.9 < 1.08 < high
    said = drawn(figure)
    for text in ("a → b\ncudart 11.8 → 12.4", "a → d\nthe whole", "Geometric mean over all 3 cases"):
        assert text in said
    assert "a to d in 3 steps: 1.0" in said
    colours = [canvas.LOOKS[change][0] for change in (Change.FASTER, Change.SAME, Change.SLOWER)]
    in_case = [collection.get_facecolor() for collection in figure.axes[3].collections]
    assert [to_hex(colour[0]).upper() for colour in in_case[:3]] == colours


def test_every_bar_lies_inside_the_axis_and_a_wide_interval_may_leave_it():
    wide = bridge.Ratio(1.02, 0.2, 5.0, Change.UNCLEAR)
    line = bridge.Line("f/op", 1, (wide, wide), bridge.Ratio(1.0404))
    found = bridge.Bridge(("a", "b", "c"), "demo", (), None, (), (line,))
    axes = bridge_chart.new_figure(6, 3).subplots()
    bridge_chart._panel(axes, line, ["1", "2", "whole"])
    low, high = axes.get_xlim()
    assert low < 1 < 1.0404 < high < 1.3
    assert found.exact


def test_hostile_names_do_no_harm(found, tmp_path):
    name = "$\\frac{x$<script>|\n\x1b[31m"
    hostile = dataclasses.replace(
        found,
        stacks=(name, *found.stacks[1:]),
        lines=tuple(dataclasses.replace(line, name=name) for line in found.lines),
    )
    png, svg = canvas.save(bridge_chart.waterfall(hostile), tmp_path, "waterfall")
    assert png.stat().st_size > 10_000
    assert "<script>" not in svg.read_text()
    assert "\x1b" not in page.markdown(bridge_page.title(hostile), bridge_page.sections(hostile))


def test_a_bridge_without_a_common_case_says_so(found):
    empty = dataclasses.replace(found, lines=(), means=())
    assert "no case was measured in every step" in drawn(bridge_chart.waterfall(empty))
    told = "".join(map(str, bridge_page.sections(empty, charts=False)))
    assert "No case was measured on every one of these stacks" in told


@pytest.mark.parametrize("form", ["table", "md", "json", "csv"])
def test_it_is_printed_for_people_and_for_machines(found, capsys, form):
    bridge_page.show(found, form)
    printed = capsys.readouterr().out
    if form == "json":
        document = json.loads(printed)
        assert document["steps"][0]["exchanges"] == "cudart 11.8 -> 12.4"
        assert document["exact"] is True
    elif form == "csv":
        rows = [row for row in csv.DictReader(io.StringIO(printed)) if row["case_id"].startswith("ladder/")]
        assert [row["step"] for row in rows] == ["1", "2", "3", "whole"]
        assert math.prod(float(row["ratio"]) for row in rows[:3]) == pytest.approx(float(rows[3]["ratio"]))
    else:
        for text in (
            "step by step",
            "cudart 12.4",
            "multiply to the whole by construction",
            "its repeat differ",
        ):
            assert text in printed


def test_compare_of_more_than_two_is_a_bridge_and_fails_on_its_whole(results):
    arguments = ["compare", *NAMES, "--campaign", "whole", "--results", str(results), "--fail-on", "slower"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 1, done.output  # its first step is faster, the whole is slower
    assert "a -> b -> c -> d (whole)" in done.output


def test_the_report_holds_the_waterfall(results, tmp_path):
    arguments = ["report", *NAMES, "--campaign", "whole", "--results", str(results), "-o", str(tmp_path)]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "report.md").read_text()
    assert "## The bridge, step by step" in text
    assert "waterfall.png" in text
    assert (tmp_path / "waterfall.svg").exists()


def test_the_shipped_runtimes_are_a_bridge():
    names = [f"cudart-{version}" for version in ("11.8", "12.4", "13.5")]
    found = bridge.bridge(sides.several(names, "h200-cudart-rounds", RESULTS))
    assert [bridge.exchanged(step) for step in found.steps] == ["cudart 11.8 -> 12.4", "cudart 12.4 -> 13.5"]
    assert found.exact
    assert (len(found.lines), found.means[0].cases) == (12, 12)
    assert not any(step.canaries_moved for step in found.steps)
