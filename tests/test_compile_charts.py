"""The charts of torch.compile show what was compared, and the medians of what happened once a process."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from figures import assert_readable, in_one_line, intervals, points

from bench_lib.comparing import compare, sides
from bench_lib.comparing.store import Data
from bench_lib.drawing.compile_charts import compile_first_step, compile_speed_up
from bench_lib.errors import UsageError
from bench_lib.model import Case, Timing

TRAIN, INFER = "ResNet-50 training", "ResNet-50 inference"
AT = "batch 128, bf16-autocast, channels_last"
GAINS = {"step": 1.4, "forward": 1.8, "backward": 1.2, "optimizer": 0.98}
Timed = tuple[Case, float, Mapping[str, float]]


def case(mode: str, execution: str, metric: str, batch: int = 128) -> Case:
    setup = {"mode": mode, "batch": batch, "precision": "bf16-autocast", "layout": "channels_last"}
    return Case("compile_resnet50", "resnet50", {**setup, "execution": execution, "metric": metric})


def steps(batch: int = 128) -> Iterable[Timed]:
    for metric, gain in GAINS.items():
        yield case("train", "eager", metric, batch), 0.03, {}
        yield case("train", "compiled", metric, batch), 0.03 / gain, {}
    for execution, gain in (("eager", 1.0), ("compiled", 1.5), ("compiled-reduce-overhead", 1.6)):
        yield case("infer", execution, "step", batch), 0.01 / gain, {}


def firsts(paid: float | None = 3500.0) -> Iterable[Timed]:
    for mode in ("train", "infer"):
        yield case(mode, "eager", "first_cold"), 1.1, {}
        told = {} if paid is None else {"payback_steps": paid}
        yield case(mode, "compiled", "first_cold"), 30.0, told
        yield case(mode, "compiled", "first_warm"), 6.0, told and {"payback_steps": paid / 10}


def write(results: Path, runs: int, cases: Iterable[Timed], facts: Mapping[str, str] | None = None) -> Data:
    made = (
        synthetic.SyntheticCase(
            one,
            seconds,
            timing=Timing.HOST,
            quantities=quantities,
            facts=facts if facts and one.params["execution"] == "compiled" else {},
        )
        for one, seconds, quantities in cases
    )
    return synthetic.write_here(results, "compiled", runs, made)


def test_speed_up_by_configuration_beside_the_published_claim(tmp_path):
    figure = compile_speed_up(write(tmp_path, 3, steps()))
    found = points(figure, 0)
    assert found[f"{TRAIN}, {AT}; whole step: compiled"] == pytest.approx(1.4, rel=0.03)
    assert found[f"{TRAIN}, {AT}; optimizer: compiled"] == pytest.approx(0.98, rel=0.03)
    assert found[f"{INFER}, {AT}; whole step: compiled-reduce-overhead"] == pytest.approx(1.6, rel=0.03)
    side = sides.whole_stack(None, "compiled", tmp_path)
    rows = compare.contrast(side, "execution", "eager", "compiled").cases
    ends = sorted((1 / row.high, 1 / row.low) for row in rows)
    assert set(ends) < set(intervals(figure, 0))
    assert len(intervals(figure, 0)) == 6
    (row,) = [row for row in rows if row.metric == "forward"]
    assert f"{1 / row.ratio:.3f} [{1 / row.high:.3f}, {1 / row.low:.3f}]" in in_one_line(figure)
    (band,) = [patch for patch in figure.axes[0].patches if patch.get_width() == pytest.approx(0.15)]
    assert band.get_x() == 1.35
    assert "published claim for ResNet-50 training: +35 to 50 %" in in_one_line(figure)
    assert_readable(figure)


def test_of_very_many_configurations_whole_steps_are_drawn(tmp_path):
    data = write(tmp_path, 1, [one for batch in range(11, 23) for one in steps(batch)])
    figure = compile_speed_up(data)
    assert len(points(figure, 0)) == 3 * 12
    assert f"{TRAIN}; batch 12, bf16-autocast, channels_last: compiled" in points(figure, 0)
    assert "Whole steps only" in in_one_line(figure)
    assert "1 run: no intervals" in in_one_line(figure)
    assert_readable(figure)


def test_first_steps_cold_and_warm_and_when_they_have_paid(tmp_path):
    figure = compile_first_step(write(tmp_path, 2, firsts()))
    seconds, paid = points(figure, 0), points(figure, 1)
    assert seconds[f"{TRAIN}, {AT}: eager"] == pytest.approx(1.1, rel=0.03)
    assert seconds[f"{INFER}, {AT}: compiled, empty caches (cold)"] == pytest.approx(30, rel=0.03)
    warm = f"{TRAIN}, {AT}: compiled, caches of an earlier process (warm)"
    assert seconds[warm] == pytest.approx(6.0, rel=0.03)
    assert paid == {
        f"{mode}, {AT}: compiled, {caches}": steps
        for mode in (TRAIN, INFER)
        for caches, steps in (
            ("empty caches (cold)", 3500.0),
            ("caches of an earlier process (warm)", 350.0),
        )
    }
    low, high = figure.axes[0].get_xlim()
    assert low < 1.0 < 3.0 < high
    assert "published claim: 1 to 3 s" in in_one_line(figure)
    assert "3500 steps" in in_one_line(figure)
    assert_readable(figure)


@pytest.mark.parametrize(
    ("paid", "facts", "text"),
    [(None, {"payback": "never: the compiled step is not faster"}, "never"), (0.0, None, "at once")],
)
def test_what_never_pays_and_what_pays_at_once(tmp_path, paid, facts, text):
    figure = compile_first_step(write(tmp_path, 1, firsts(paid), facts))
    assert not [x for x in points(figure, 1).values() if not math.isnan(x)]
    assert in_one_line(figure).count(text) == 4
    assert_readable(figure)


@pytest.mark.parametrize(("draw", "cases"), [(compile_speed_up, firsts()), (compile_first_step, steps())])
def test_what_was_not_measured_is_not_drawn(tmp_path, draw, cases):
    with pytest.raises(UsageError, match="measure"):
        draw(write(tmp_path, 1, cases))


def test_claims_about_a_gpu_are_not_drawn_over_one_stage_on_a_cpu(tmp_path):
    cases = [(replace(one, op="bottleneck"), *rest) for one, *rest in (*steps(), *firsts())]
    data = write(tmp_path, 1, cases)
    for draw in (compile_speed_up, compile_first_step):
        figure = draw(data)
        assert "published claim" not in in_one_line(figure)
        assert "(1 run)" in figure.get_suptitle()
        assert_readable(figure)
