"""What torch.compile gives on torchvision's ResNet-50, and what its first step costs.

Metrics: `step` and its parts `forward`, `backward`, `optimizer`, eager and compiled in turns of ten
steps; `first_cold`, the first step of a fresh process with empty caches, and `first_warm`, with the
caches that one left. Read the gain with `--contrast execution=eager:compiled`. Images a second are
`batch` over the step. On the CPU one bottleneck stage stands for the network.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

import pytest

from bench_lib.errors import NotApplicable
from bench_lib.running.outcomes import given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench_lib.compiling.compile_children import First, FirstSteps
    from bench_lib.compiling.executions import Outcome
    from bench_lib.compiling.training import Setup
    from bench_lib.model import Policy

FAMILY = "compile_resnet50"
MARGIN = 0.02

pytestmark = [
    pytest.mark.margin(0.10, metric=["first_cold", "first_warm"]),
    pytest.mark.budget(1800),  # the case that comes first measures its whole set, compilation included
]

PARAMS = ("mode", "batch", "precision", "layout", "execution", "metric")
TRAIN_METRICS = ("step", "forward", "backward", "optimizer")

QUICK = ("eager", "compiled")
MODES = ("eager", "compiled", "compiled-reduce-overhead", "compiled-max-autotune")
TRAIN_128 = ("train", 128, "bf16-autocast", "channels_last")
INFER_128 = ("infer", 128, "bf16-autocast", "channels_last")
CORE = {TRAIN_128: QUICK, INFER_128: QUICK}
DEFAULT = {
    ("train", 32, "bf16-autocast", "channels_last"): QUICK,
    TRAIN_128: QUICK,
    ("train", 64, "tf32", "nchw"): QUICK,
    INFER_128: MODES[:3],
}
FULL = {
    setup: (*MODES, "eager#2") if setup == TRAIN_128 else MODES
    for setup in product(
        ("train", "infer"), (32, 64, 128, 256), ("bf16-autocast", "tf32", "fp32"), ("channels_last", "nchw")
    )
}
FIRST = (("eager", "first_cold"), ("compiled", "first_cold"), ("compiled", "first_warm"))

CPU_BATCH = 4
CPU_SETUPS = [(mode, CPU_BATCH, "fp32", "channels_last") for mode in ("infer", "train")]


def metrics(mode: str) -> tuple[str, ...]:
    return TRAIN_METRICS if mode == "train" else TRAIN_METRICS[:1]


def steady_rows(grid: dict[tuple, tuple[str, ...]]) -> list[tuple]:
    return [
        (*setup, execution, metric)
        for setup, executions in grid.items()
        for execution in executions
        for metric in metrics(setup[0])
    ]


def rows_of_resnet50() -> Iterator[object]:
    """Every case of the whole network, with its marks: core, none, or full."""
    core, default = steady_rows(CORE), steady_rows(DEFAULT)
    cpu = dict.fromkeys(CPU_SETUPS, QUICK)
    yield from (pytest.param(*row, marks=pytest.mark.core) for row in core)
    yield from (row for row in default if row not in core)
    yield from ((*setup, *first) for setup in CORE for first in FIRST)
    yield from (
        pytest.param(*row, marks=pytest.mark.full) for row in steady_rows(FULL | cpu) if row not in default
    )


def rows_of_bottleneck() -> Iterator[object]:
    """The cases of one bottleneck stage: inference, and with --full training and first steps."""
    infer = CPU_SETUPS[0]
    yield from (pytest.param(*row, marks=pytest.mark.core) for row in steady_rows({infer: QUICK}))
    more = [*steady_rows({CPU_SETUPS[1]: QUICK}), *((*infer, *first) for first in FIRST)]
    yield from (pytest.param(*row, marks=pytest.mark.full) for row in more)


def shorter(policy: Policy) -> Policy:
    """The run's policy with a third of its time: what is asked is a ratio in turns, known after few."""
    return replace(policy, budget_seconds=policy.budget_seconds / 3)


@pytest.fixture(scope="module")
def first_steps(on_gpu: bool, tmp_path_factory) -> Iterator[FirstSteps]:
    """The processes whose first step is timed."""
    from bench_lib.compiling.compile_children import FirstSteps

    made = FirstSteps(FIRST, "cuda" if on_gpu else "cpu", lambda: tmp_path_factory.mktemp("caches"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def steady(
    request, torch, on_gpu: bool, bench_policy, order_seed: int, first_steps: FirstSteps
) -> Callable[[Setup, str], Outcome]:
    """The outcome of one execution of a set-up; a set-up is measured once, all executions in turns.

    The processes of the first steps import what they need beside the making of the first arms.
    """
    from bench_lib.compiling import executions
    from bench_lib.timing.turns import HostClock

    gpu = request.getfixturevalue("gpu") if on_gpu else None
    grid = FULL if request.config.getoption("full") else CORE if bench_policy.name == "quick" else DEFAULT

    @cache
    def measured(setup: Setup) -> dict[str, Outcome]:
        names = grid.get((setup.mode, setup.batch, str(setup.precision), setup.layout), QUICK)
        clock, device = (gpu, "cuda") if gpu else (HostClock(), "cpu")
        telemetry = gpu.telemetry if gpu else None
        first_steps.start(first_setups(request.session.items) if on_gpu else ())
        return executions.measure(
            setup, names, device, clock, shorter(bench_policy), order_seed, telemetry, first_steps.ready
        )

    return lambda setup, execution: measured(setup)[execution]


@pytest.fixture(scope="module")
def first(
    request, torch, on_gpu: bool, first_steps: FirstSteps
) -> Callable[[Setup, str, str], First | Exception]:
    """What a process's first step gave, by execution and metric; a warm one follows its cold one."""

    @cache
    def take(setup: Setup, execution: str, metric: str) -> First | Exception:
        cold = metric == "first_cold"
        try:
            if not cold:
                given(take(setup, execution, "first_cold"))
            first_steps.start(first_setups(request.session.items) if on_gpu else ())
            return first_steps.of(setup)[execution, metric].take(cold)
        except Exception as error:
            return error

    return take


def first_setups(items: list[pytest.Item]) -> list[Setup]:
    """The set-ups of the whole network whose first steps these items ask for."""
    from bench_lib.compiling.training import Setup
    from bench_lib.convolution.precision import Precision

    asked = [item.callspec.params for item in items if getattr(item, "originalname", "") == "bench_resnet50"]
    rows = {tuple(p[name] for name in PARAMS[:4]) for p in asked if p["metric"] not in TRAIN_METRICS}
    return [Setup("resnet50", mode, batch, Precision(p), layout) for mode, batch, p, layout in sorted(rows)]


def measure_case(bench, request, network: str, setup: tuple, execution: str, metric: str) -> None:
    """Record one case, its series measured by the fixture of its metric."""
    from bench_lib.compiling.training import Setup
    from bench_lib.convolution.precision import Precision, check_supported

    mode, batch, precision, layout = setup
    gpu = request.getfixturevalue("gpu") if bench.device == "cuda" else None
    check_supported(Precision(precision), bench.device, gpu.context.compute_capability if gpu else None)
    asked = Setup(network, mode, batch, Precision(precision), layout)
    steady = request.getfixturevalue("steady")
    if metric in TRAIN_METRICS:
        bench.record(given(steady(asked, execution))[metric])
    else:
        record_first(bench, asked, execution, metric, request.getfixturevalue("first"), steady)


def record_first(bench, setup: Setup, execution: str, metric: str, first, steady) -> None:
    """Record a first step; of a compiled one also what it costs over eager's, and the pay-back."""
    from bench_lib.model import Series, Timing

    found = given(first(setup, execution, metric))
    bench.record(Series((found.seconds,), timing=Timing.HOST, quantities=found.quantities, facts=found.facts))
    if metric == "first_warm" and not found.cache_hits:
        bench.warn("the warm first step found nothing in the caches that the cold one left")
    if execution == "eager":
        return
    compile_seconds = found.seconds - given(first(setup, "eager", "first_cold")).seconds
    bench.quantity("compile_seconds", compile_seconds)
    eager, compiled = (median(given(steady(setup, e))["step"].seconds) for e in ("eager", execution))
    if eager > compiled:
        bench.quantity("payback_steps", max(compile_seconds, 0.0) / (eager - compiled))
    else:
        bench.fact("payback", "never: the compiled step is not faster")


@pytest.mark.needs_gpu(batch=[32, 64, 128, 256])
@pytest.mark.parametrize(PARAMS, list(rows_of_resnet50()))
def bench_resnet50(bench, request, mode, batch, precision, layout, execution, metric) -> None:
    """The whole network: images of 224 x 224, 1000 classes, SGD with momentum."""
    if (batch == CPU_BATCH) != (bench.device == "cpu"):
        raise NotApplicable(
            f"the whole network is a GPU's case; on the CPU it is batch {CPU_BATCH}, with --full"
        )
    measure_case(bench, request, "resnet50", (mode, batch, precision, layout), execution, metric)


@pytest.mark.parametrize(PARAMS, list(rows_of_bottleneck()))
def bench_bottleneck(bench, request, mode, batch, precision, layout, execution, metric) -> None:
    """One bottleneck stage: three blocks of 64 to 256 channels on 28 x 28."""
    if bench.device == "cuda":
        raise NotApplicable("one bottleneck stage stands for the network on the CPU alone")
    measure_case(bench, request, "bottleneck", (mode, batch, precision, layout), execution, metric)
