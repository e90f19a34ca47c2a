"""The charts of convolutions show what was compared, and say what they cannot show."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import synthetic
from figures import assert_readable, in_one_line, intervals, points

from bench_lib.comparing import compare, sides, store
from bench_lib.comparing.store import Data
from bench_lib.drawing.conv_charts import precision_speed_up, tuning
from bench_lib.errors import UsageError
from bench_lib.model import Case, Measurement, Status, Timing, Work

SHAPE, OTHER = "3x3-64-64-56", "1x1-64-256-56"
FLOP = 14.8e9
# Seconds of each precision; at batch 64 bf16 is the slower one.
SECONDS = {"fp32": 400e-6, "tf32": 200e-6, "fp16-autocast": 100e-6, "bf16-autocast": 440e-6, "fp16": 80e-6}


def measured(case: Case, seconds: float, rng: np.random.Generator, flop: float | None = None, **more):
    made = synthetic.SyntheticCase(case, seconds, timing=Timing.COLD, work=Work(flop=flop))
    return synthetic.measurement(made, synthetic.times(rng, seconds, synthetic.Noise(), 10), **more)


def write(results: Path, name: str, runs: int, cases: Iterable[tuple[Case, float]], **of_run: str) -> Data:
    """Runs that all measured these cases, each with its FLOP."""
    machine = synthetic.Machine(gpu_name=of_run.pop("gpu_name", "NVIDIA H200"))
    made = (synthetic.SyntheticCase(*one, timing=Timing.COLD, work=Work(flop=FLOP)) for one in cases)
    return synthetic.write_here(results, name, runs, made, machine=machine, **of_run)


def conv(
    precision: str, layout: str = "channels_last", direction: str = "forward", shape: str = SHAPE
) -> Case:
    params = {"shape": shape, "precision": precision, "layout": layout, "direction": direction, "batch": 64}
    return Case("amp_conv", "conv", params)


def amp_cases() -> Iterable[tuple[Case, float]]:
    for direction, factor in (("forward", 1.0), ("training", 3.0)):
        for layout in ("nchw", "channels_last"):
            for precision, seconds in SECONDS.items():
                yield conv(precision, layout, direction), factor * seconds
    for precision, seconds in SECONDS.items():
        step = {"network": "resnet50", "precision": precision, "layout": "channels_last", "batch": 64}
        yield Case("amp_conv", "train_step", {**step, "metric": "step"}), 100 * seconds
        yield Case("amp_conv", "small_cnn", {"precision": precision, "metric": "step"}), 2e-3


def test_speed_up_and_share_of_the_peak_by_precision_and_layout(tmp_path):
    data = write(tmp_path, "amp", 4, amp_cases())
    figure = precision_speed_up(data)
    gains, shares = points(figure, 0), points(figure, 1)
    side = sides.whole_stack(None, "amp", tmp_path)
    rows = {row.case_id: row for row in compare.contrast(side, "precision", "fp32", "fp16").cases}
    (row,) = [row for name, row in rows.items() if "forward" in name and "nchw" in name]
    assert gains[f"One convolution, forward; {SHAPE}, NCHW: fp16"] == pytest.approx(1 / row.ratio)
    assert (1 / row.high, 1 / row.low) in intervals(figure, 0)
    backward = f"One convolution, forward and backward; {SHAPE}, channels_last"
    assert gains[f"{backward}: fp16-autocast"] == pytest.approx(4.0, rel=0.03)
    assert gains[f"{backward}: bf16-autocast"] == pytest.approx(0.91, rel=0.03)
    step = "A training step: forward, backward, SGD"
    assert gains[f"{step}; ResNet-50, channels_last: tf32"] == pytest.approx(2.0, rel=0.03)
    assert gains[f"{step}; small CNN, made-up data: tf32"] == pytest.approx(1.0, rel=0.03)
    forward = f"One convolution, forward; {SHAPE}, NCHW"
    assert shares[f"{forward}: fp32"] == pytest.approx(FLOP / 400e-6 / 67e12, rel=0.03)
    assert shares[f"{forward}: fp16"] == pytest.approx(FLOP / 80e-6 / 989.4e12, rel=0.03)
    assert figure.axes[0].get_xlim()[0] < 0.91
    assert "4 runs; bars are 95 % intervals" in in_one_line(figure)
    assert re.search(
        r"Autocast: 0\.9\d to \d\.\d\d times as fast as IEEE fp32 on one convolution; "
        r"0\.9\d \(ResNet-50\) to \d\.\d\d \(ResNet-50\) on a training step",
        in_one_line(figure),
    )
    assert_readable(figure)


def test_one_run_has_no_interval_and_an_unknown_gpu_no_peak(tmp_path):
    data = write(tmp_path, "amp", 1, amp_cases(), gpu_name="NVIDIA Z1")
    figure = precision_speed_up(data)
    assert intervals(figure, 0) == []
    assert "1 run: no intervals, which need 3 runs." in in_one_line(figure)
    rate = points(figure, 1)[f"One convolution, forward; {SHAPE}, NCHW: tf32"]
    assert rate == pytest.approx(FLOP / 200e-6 / 1e12, rel=0.03)
    assert figure.axes[1].get_xlabel() == "TFLOP/s"
    assert_readable(figure)


def test_a_wrong_result_is_counted_and_not_drawn(tmp_path):
    rng = np.random.default_rng(1)
    made: list[Measurement] = [
        measured(conv("fp32"), 4e-4, rng),
        measured(conv("tf32"), 2e-4, rng),
        measured(conv("fp32", shape=OTHER), 4e-4, rng, status=Status.WRONG_RESULT, reason="wrong"),
        measured(conv("tf32", shape=OTHER), 2e-4, rng),
    ]
    info = synthetic.run_info("amp", "here")
    synthetic.write_run(tmp_path, info, synthetic.identity(synthetic.Machine()), made)
    figure = precision_speed_up(store.load(tmp_path, ["amp"]))
    assert list(points(figure, 0)) == [f"One convolution, forward; {SHAPE}, channels_last: tf32"]
    assert "1 case failed or computed wrong numbers" in in_one_line(figure)


def test_quick_and_default_runs_are_never_pooled(tmp_path):
    cases = [(conv("fp32"), 4e-4), (conv("tf32"), 2e-4)]
    write(tmp_path, "amp", 3, cases, policy="quick")
    more = [(conv("fp32"), 4e-3), (conv("tf32"), 1e-3), (conv("fp32", shape=OTHER), 4e-4)]
    data = write(tmp_path, "amp", 1, [*more, (conv("tf32", shape=OTHER), 1e-4)])
    figure = precision_speed_up(data)
    gains = points(figure, 0)
    assert gains[f"One convolution, forward; {SHAPE}, channels_last: tf32"] == pytest.approx(2.0, rel=0.03)
    assert gains[f"One convolution, forward; {OTHER}, channels_last: tf32"] == pytest.approx(4.0, rel=0.05)
    rates = points(figure, 1)
    assert rates[f"One convolution, forward; {SHAPE}, channels_last: fp32"] == pytest.approx(
        FLOP / 4e-4 / 67e12, rel=0.03
    )
    assert "Beyond 100 %" not in in_one_line(figure)
    assert "1 to 3 runs; bars are 95 % intervals, which need 3 runs." in in_one_line(figure)


def test_a_share_beyond_the_peak_is_explained(tmp_path):
    figure = precision_speed_up(write(tmp_path, "amp", 1, [(conv("fp32"), 2e-4), (conv("tf32"), 1e-4)]))
    assert max(points(figure, 1).values()) > 1
    assert "Beyond 100 %: counted is the FLOP of a direct convolution" in in_one_line(figure)
    assert "2.00 times as fast as IEEE fp32 on one convolution (1 run)" in in_one_line(figure)
    assert_readable(figure)


def selection(op: str, benchmark: str, metric: str, shape: str = SHAPE, **more: str) -> Case:
    params = {"shape": shape, "precision": "fp16", "layout": "channels_last", "batch": 64}
    return Case("cudnn_selection", op, {**params, "benchmark": benchmark, "metric": metric, **more})


def selection_cases() -> Iterable[tuple[Case, float]]:
    for shape, on in ((SHAPE, 50e-6), (OTHER, 125e-6)):
        yield selection("conv", "off", "time", shape, direction="forward"), 100e-6
        yield selection("conv", "on", "time", shape, direction="forward"), on
        yield selection("tuning", "on", "tuning", shape), 0.2
    for benchmark, seconds in (("off", 0.01), ("on", 0.3), ("deterministic", 0.02)):
        yield selection("first_call", benchmark, "first"), seconds
    for benchmark, seconds, choice in (("off", 100e-6, 1e-4), ("on", 110e-6, 0.05)):
        yield selection("conv_by_path", benchmark, "time"), seconds
        yield selection("choice_by_path", benchmark, "tuning"), choice


def test_what_tuning_gives_and_costs_by_shape_where_it_loses_too(tmp_path):
    figure = tuning(write(tmp_path, "cudnn", 3, selection_cases()))
    gains, costs, form = points(figure, 0), points(figure, 1), "fp16, channels_last"
    assert gains[f"Forward; {SHAPE}: {form}"] == pytest.approx(2.0, rel=0.03)
    assert gains[f"Forward; {OTHER}: {form}"] == pytest.approx(0.8, rel=0.03)
    path = f"cuDNN by path, without torch: forward; {SHAPE}"
    assert gains[f"{path}: {form}"] == pytest.approx(0.91, rel=0.03)
    assert len(intervals(figure, 0)) == 3
    assert costs[f"Forward; {SHAPE}: {form}: the call that tunes"] == pytest.approx(0.2, rel=0.03)
    assert costs[f"Forward; {SHAPE}: {form}: first call of a process, off"] == pytest.approx(0.01, rel=0.03)
    assert costs[f"{path}: {form}: cudnnFind, which tries all"] == pytest.approx(0.05, rel=0.03)
    assert len(costs) == 6
    assert "slower beyond the margin in 1 of 2 cases" in in_one_line(figure)
    assert_readable(figure)


@pytest.mark.parametrize("draw", [precision_speed_up, tuning])
def test_without_both_sides_there_is_no_such_chart(tmp_path, draw):
    cases = [(conv("fp32"), 1e-4), (selection("conv", "off", "time", direction="forward"), 1e-4)]
    with pytest.raises(UsageError, match="measure both"):
        draw(write(tmp_path, "half", 1, cases))


def test_a_title_tells_no_number_of_a_single_run_where_others_have_intervals(tmp_path):
    write(tmp_path, "amp", 3, [(conv("fp32"), 4e-4), (conv("fp16-autocast"), 2e-4)])
    once = [(conv("fp32", shape=OTHER), 9e-4), (conv("fp16-autocast", shape=OTHER), 1e-4)]
    figure = precision_speed_up(write(tmp_path, "amp", 1, once))
    assert points(figure, 0)[f"One convolution, forward; {OTHER}, channels_last: fp16-autocast"] > 8
    title = figure.get_suptitle()
    assert re.search(r"Autocast: (1\.9\d|2\.0\d) times as fast", title)


def test_a_title_says_which_of_its_gains_are_not_settled(tmp_path):
    """Two runs gain as much as two others lose: the mean is near 1, and its interval holds it."""
    step = {"network": "resnet50", "layout": "channels_last", "batch": 64, "metric": "step"}
    fp32, amp = (Case("amp_conv", "train_step", {**step, "precision": p}) for p in ("fp32", "fp16-autocast"))
    for seconds in (3e-2, 5.5e-2, 2.8e-2, 5.4e-2):
        once = [(conv("fp32"), 4e-4), (conv("fp16-autocast"), 1e-4 * seconds / 1e-2)]
        write(tmp_path, "amp", 1, [*once, (fp32, 4e-2), (amp, seconds)])
    title = " ".join(precision_speed_up(store.load(tmp_path, ["amp"])).get_suptitle().split())
    single, _, steps = title.partition("; ")
    assert re.search(r"\d\.\d\d \(not settled\) times as fast", single)
    assert re.search(r"\d\.\d\d \(ResNet-50, not settled\) on a training step", steps)
