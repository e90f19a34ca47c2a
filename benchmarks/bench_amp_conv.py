"""What mixed precision gives a convolution, and a training step, over IEEE fp32.

Read it with `--contrast precision=fp32:bf16-autocast`. `conv`: the convolutions of ResNet-50 and one
of three dimensions, device time on a cold L2. `train_step`: a bottleneck block and ResNet-50, all
precisions in turns. `small_cnn`: 300 steps from one seed; final loss and accuracy are its quantities.
TF32 is off everywhere but in `tf32`; cuDNN chooses by its heuristic (cudnn_selection has the rest).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.convolution.precision import Precision
from bench_lib.convolution.shapes import CONV3D, DIRECTIONS, LAYOUTS, RESNET50
from bench_lib.convolution.tuning import Tuning, in_tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from bench_lib.convolution.convolutions import Convolution

FAMILY = "amp_conv"
MARGIN = 0.02
BATCH = {"cuda": 64, "cpu": 2}
SHAPES = [*RESNET50, CONV3D]
ON_CPU = ("fp32", "bf16-autocast", "bf16")
IN_TRAINING = ["fp32", "tf32", "fp16-autocast", "bf16-autocast"]
PURE_HALF = ["fp16", "bf16"]
MOST_SHAPES = [name for name in SHAPES if name != "3x3-64-64-56"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Batch, precisions and networks of the device that is measured; a CPU takes minutes for ResNet-50."""
    device = metafunc.config.pluginmanager.get_plugin("cuda-gains").target.device
    if "network" in metafunc.fixturenames:
        whole = device == "cuda" or metafunc.config.getoption("full")
        metafunc.parametrize("network", ["bottleneck", "resnet50"] if whole else ["bottleneck"])
    if "batch" in metafunc.fixturenames:
        metafunc.parametrize("batch", [BATCH[device]])
    if "precision" in metafunc.fixturenames:
        pure = metafunc.function is bench_conv
        wanted = [str(p) for p in Precision if pure or str(p) in IN_TRAINING]
        metafunc.parametrize("precision", [p for p in wanted if device == "cuda" or p in ON_CPU])


@pytest.fixture(scope="module")
def capability(request: pytest.FixtureRequest, on_gpu: bool) -> tuple[int, int] | None:
    """The GPU's compute capability, None on the CPU."""
    return request.getfixturevalue("gpu").context.compute_capability if on_gpu else None


@pytest.fixture(scope="module", autouse=True)
def heuristic(torch, on_gpu: bool) -> Iterator[None]:
    """cuDNN chooses by its heuristic in all cases here."""
    if not on_gpu:
        yield
        return
    with in_tuning(torch, Tuning.OFF):
        yield


@pytest.fixture(autouse=True)
def noted_warnings(bench) -> Iterator[None]:
    """What torch warns of (a plan of cuDNN that failed, say) is a doubt about the case, no end of it."""
    from bench_lib.compiling.executions import kept_warnings

    with kept_warnings() as said:
        yield
    for text in said:
        bench.warn(text)


@pytest.fixture(scope="module")
def fp32_seconds() -> dict[tuple, float]:
    """Medians of the fp32 cases measured so far, by shape, layout and direction."""
    return {}


def check_and_note(bench: Any, torch: ModuleType, made: Convolution) -> None:
    """Check the result, then note its error, its bits and the memory it takes."""
    error, checksum = made.check()
    bench.quantity("relative_error", error)
    bench.fact("checksum", checksum)
    if bench.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        made.run()
        torch.cuda.synchronize()
        bench.quantity("peak_nbytes", torch.cuda.max_memory_allocated())
        bench.quantity("peak_reserved_nbytes", torch.cuda.max_memory_reserved())


def fp32_reference(bench: Any, torch: ModuleType, make: Callable[[Precision], Convolution]) -> float:
    """The median of a short measurement in fp32, for an AMP case that comes before its fp32 case."""
    from bench_lib.convolution.precision import in_precision
    from bench_lib.model import Policy
    from bench_lib.timing.measure import measure
    from bench_lib.timing.timer import Cold

    policy = Policy("reference", samples=9, budget_seconds=1.0, warmup_seconds=0.02, max_warmup_seconds=0.2)
    with in_precision(torch, Precision.FP32, bench.device):
        return median(measure(make(Precision.FP32).run, Cold(bench.conditions.gpu()), policy).seconds)


@pytest.mark.core(
    shape=["7x7-3-64-224-s2", "1x1-64-256-56", CONV3D],
    precision=IN_TRAINING,
    layout="channels_last",
    direction="forward",
)
@pytest.mark.core(shape="3x3-64-64-56", precision=IN_TRAINING, direction="forward")
@pytest.mark.core(shape="3x3-64-64-56", precision=IN_TRAINING, layout="channels_last")
@pytest.mark.full(direction="training", precision=PURE_HALF)
@pytest.mark.full(direction="training", layout="nchw", shape=MOST_SHAPES)
@pytest.mark.full(layout="nchw", precision=PURE_HALF)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES)
def bench_conv(
    bench,
    torch,
    capability,
    fp32_seconds,
    shape: str,
    precision: str,
    layout: str,
    direction: str,
    batch: int,
) -> None:
    """One convolution: forward, or forward and the gradients of input and weight."""
    from bench_lib.convolution.amp_steps import no_speedup
    from bench_lib.convolution.convolutions import Convolution
    from bench_lib.convolution.precision import check_supported, in_precision

    def make(precision: Precision) -> Convolution:
        return Convolution(torch, shape, batch, precision, layout, direction, bench.device)

    asked, key = Precision(precision), (shape, layout, direction)
    check_supported(asked, bench.device, capability)
    with in_precision(torch, asked, bench.device) as effect:
        bench.facts(effect.facts())
        made = make(asked)
        check_and_note(bench, torch, made)
        bench(made.run, timing="cold", flop=made.flop)
    seconds = median(bench.series.seconds)
    if asked is Precision.FP32:
        fp32_seconds[key] = seconds
    elif asked.autocast and bench.device == "cuda":
        if key not in fp32_seconds:
            fp32_seconds[key] = fp32_reference(bench, torch, make)
        for warning in no_speedup(asked, fp32_seconds[key], seconds, capability):
            bench.warn(warning)


@pytest.fixture(scope="module")
def steps(request, torch, on_gpu: bool, capability, bench_policy, order_seed: int) -> Callable:
    """Outcomes by precision of one network's step; measured once a network and layout, in turns."""
    from bench_lib.compiling.training import TRAIN, Setup
    from bench_lib.convolution import amp_steps
    from bench_lib.timing.turns import HostClock

    gpu = request.getfixturevalue("gpu") if on_gpu else None
    precisions = [Precision(p) for p in IN_TRAINING if on_gpu or p in ON_CPU]
    clock, device, telemetry = (gpu, "cuda", gpu.telemetry) if gpu else (HostClock(), "cpu", None)
    # A third of the time: what is asked is a ratio within turns, known after few.
    policy = replace(bench_policy, budget_seconds=bench_policy.budget_seconds / 3)

    @cache
    def measured(network: str, layout: str, batch: int) -> dict[Precision, amp_steps.Outcome]:
        setup = Setup(network, TRAIN, batch, Precision.FP32, layout)
        return amp_steps.measure(setup, precisions, device, capability, clock, policy, order_seed, telemetry)

    return measured


@pytest.mark.budget(600)  # the case that comes first measures its whole set
@pytest.mark.core(layout="channels_last")
@pytest.mark.full(layout="nchw")
@pytest.mark.parametrize("metric", ["step"])
@pytest.mark.parametrize("layout", LAYOUTS)
def bench_train_step(
    bench, steps, network: str, precision: str, layout: str, batch: int, metric: str
) -> None:
    """A training step: forward, backward, SGD; fp16 with a GradScaler."""
    from bench_lib.running.outcomes import given

    bench.record(given(steps(network, layout, batch)[Precision(precision)]))


@pytest.mark.core
@pytest.mark.budget(600)
@pytest.mark.parametrize("metric", ["step"])
def bench_small_cnn(bench, torch, capability, precision: str, metric: str) -> None:
    """300 steps of a small CNN from one seed, then its accuracy on images it has not seen."""
    from bench_lib.convolution.precision import check_supported, in_precision
    from bench_lib.convolution.small_training import WARMUP_STEPS, train
    from bench_lib.model import Series, Timing

    asked = Precision(precision)
    check_supported(asked, bench.device, capability)
    with in_precision(torch, asked, bench.device) as effect:
        trained = train(torch, asked, bench.device)
    outcome = {"final_loss": trained.final_loss, "accuracy": trained.accuracy}
    bench.record(
        Series(
            trained.seconds,
            timing=Timing.HOST,
            warmup_calls=WARMUP_STEPS,
            quantities=outcome,
            facts=effect.facts(),
        )
    )
