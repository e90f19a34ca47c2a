"""What cuDNN's choice of an algorithm costs and gains: heuristic, tried, exhaustive, deterministic.

Read it with `--contrast benchmark=off:on`. Each setting is measured in a process of its own, because
torch keeps the first plan it chose whatever is set later. Metrics: `time`, the steady state on a cold
L2; `tuning`, the call in which algorithms are tried; `first`, the first call of a fresh process;
`first_walk` and `second_walk`, batches of changing size. The ops by path ask cuDNN itself, no torch.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from bench_lib.convolution.precision import Precision, check_supported
from bench_lib.convolution.shapes import CONV3D, DIRECTIONS, HARD, RESNET50, WALK
from bench_lib.convolution.tuning import Tuning
from bench_lib.errors import CudaGainsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench_lib.convolution.conv_worker import Chosen, Key
    from bench_lib.convolution.cudnn import Algorithm, Cudnn
    from bench_lib.convolution.path_convolution import PathConvolution
    from bench_lib.convolution.tuned_workers import TunedWorkers
    from bench_lib.device.gpu import Gpu

FAMILY = "cudnn_selection"
MARGIN = 0.02
ONCE = pytest.mark.margin(0.10)  # for what happens once a process

SHAPES = [*RESNET50, *HARD]
THREE = ["3x3-64-64-56", "1x1-64-256-56", "3x3-256-256-28-depthwise"]
BUT_THREE = [name for name in SHAPES if name not in THREE]
BY_PATH = ["7x7-3-64-224-s2", "3x3-64-64-56", "3x3-256-256-14", "1x1-64-256-56"]

EXHAUSTIVE = pytest.param("exhaustive", marks=[pytest.mark.full, pytest.mark.budget(600)])
BATCH = pytest.mark.parametrize("batch", [64])
# Torch's defaults (TF32, NCHW), and what AMP users run; the others with --full.
FORMS = pytest.mark.parametrize(
    ("precision", "layout"),
    [
        ("tf32", "nchw"),
        ("fp16", "channels_last"),
        pytest.param("tf32", "channels_last", marks=pytest.mark.full),
        pytest.param("fp16", "nchw", marks=pytest.mark.full),
    ],
)


@pytest.fixture(scope="module")
def workers(torch, gpu: Gpu, bench_policy) -> Iterator[TunedWorkers]:
    """The processes of each tuning; `torch` is asked for so that the run knows whose cuDNN they load."""
    from bench_lib.convolution.tuned_workers import TunedWorkers

    made = TunedWorkers("cuda", bench_policy)
    quick = bench_policy.name == "quick"
    tunings = ("off", "on") if quick else ("off", "on", "deterministic")
    made.prepare([Tuning(tuning) for tuning in tunings], profiling_processes(quick))
    yield made
    made.close()


@pytest.fixture
def key(gpu: Gpu, batch: int, precision: str, layout: str) -> Callable[[str, str], Key]:
    """Shape and direction -> what a worker is asked; skipped where the GPU lacks the precision."""
    from bench_lib.convolution.conv_worker import Key

    asked = Precision(precision)
    check_supported(asked, "cuda", gpu.context.compute_capability)
    return lambda shape, direction="forward": Key(shape, batch, asked, layout, direction, "cuda")


def profiling_processes(quick: bool) -> int:
    """How many processes are asked which kernels ran: two tell whether the choice repeats."""
    return 1 if quick else 2


def record_once(bench, chosen: Chosen) -> None:
    """Record something that happened once."""
    from bench_lib.model import Series, Timing

    bench.record(
        Series((chosen.seconds,), timing=Timing.HOST, quantities=chosen.quantities, facts=chosen.facts)
    )


OFF_ON = {"benchmark": ["off", "on"], "direction": "forward"}


@pytest.mark.core(shape=[THREE[0], CONV3D], precision="tf32", layout="nchw", **OFF_ON)
@pytest.mark.core(shape=THREE[0], precision="fp16", layout="channels_last", **OFF_ON)
@pytest.mark.full(shape=[name for name in RESNET50 if name not in THREE], precision="fp16")
@pytest.mark.full(shape=BUT_THREE, direction="training")
@pytest.mark.full(precision="fp16", direction="training")
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize("benchmark_", ["off", "on", EXHAUSTIVE, "deterministic"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("shape", SHAPES)
@FORMS
@BATCH
def bench_conv(bench, workers, key, shape, direction, benchmark_, metric) -> None:
    """The steady state of one convolution, and the kernels it runs: --quick asks one process for them."""
    asked = key(shape, direction)
    bench.record(workers.steady(Tuning(benchmark_), asked, bench.budget_seconds)[1])
    processes = profiling_processes(bench.policy.name == "quick")
    try:
        facts = workers.kernels(Tuning(benchmark_), asked, processes, bench.budget_seconds)
    except (CudaGainsError, MemoryError) as error:  # the times stand without the names
        bench.warn(f"the kernels could not be asked for: {error}")
        return
    bench.facts(facts)


@ONCE
@pytest.mark.core(shape=THREE[0], precision="tf32", layout="nchw", benchmark="on")
@pytest.mark.full(shape=[name for name in RESNET50 if name not in THREE], precision="fp16")
@pytest.mark.parametrize("metric", ["tuning"])
@pytest.mark.parametrize("benchmark_", ["on", EXHAUSTIVE])
@pytest.mark.parametrize("shape", SHAPES)
@FORMS
@BATCH
def bench_tuning(bench, workers, key, shape, benchmark_, metric) -> None:
    """The call in which the algorithms are tried, cuDNN up and other shapes seen; its workspace."""
    record_once(bench, workers.steady(Tuning(benchmark_), key(shape), bench.budget_seconds)[0])


@ONCE
@pytest.mark.core(shape=THREE[0], precision="tf32", layout="nchw", benchmark=["off", "on"])
@pytest.mark.full(shape=BUT_THREE)
@pytest.mark.full(precision="fp16")
@pytest.mark.parametrize("metric", ["first"])
@pytest.mark.parametrize("benchmark_", ["off", "on", EXHAUSTIVE, "deterministic"])
@pytest.mark.parametrize("shape", SHAPES)
@FORMS
@BATCH
def bench_first_call(bench, workers, key, shape, benchmark_, metric) -> None:
    """The first call of a fresh process, after a throwaway convolution of another shape."""
    record_once(bench, workers.first(Tuning(benchmark_), key(shape), bench.budget_seconds))


@pytest.mark.margin(0.10, metric="first_walk")
@pytest.mark.parametrize("metric", ["first_walk", "second_walk"])
@pytest.mark.parametrize("benchmark_", ["off", "on"])
@pytest.mark.full(precision="fp16")
@FORMS
@BATCH
def bench_changing_size(bench, workers, key, benchmark_, metric) -> None:
    """Eight batches of different image sizes, walked once and again: does tuning pay?"""
    from bench_lib.convolution.tuned_workers import payback_batches

    keys = [key(shape) for shape in WALK]
    off, on = (workers.walk(Tuning(tuning), keys, bench.budget_seconds) for tuning in ("off", "on"))
    first, later = on if benchmark_ == "on" else off
    if metric == "first_walk":
        record_once(bench, first)
    else:
        bench.record(later)
    if benchmark_ == "on":
        batches = payback_batches(off, on, len(keys))
        if batches is None:
            bench.fact("payback", "never: the tuned walk is not faster")
        else:
            bench.quantity("payback_batches", batches)


@pytest.fixture(scope="module")
def cudnn(stack, gpu: Gpu) -> Iterator[Cudnn]:
    """The stack's cuDNN, loaded by path, on the suite's stream."""
    from bench_lib.convolution.cudnn import Cudnn
    from bench_lib.convolution.cudnn_libraries import locate_cudnn

    loaded = Cudnn.load(locate_cudnn(stack), gpu.stream)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def chosen(cudnn) -> Callable[..., tuple[float, list[Algorithm]]]:
    """Seconds of the call that chooses, and what it offers, best first; asked once."""
    from time import perf_counter

    from bench_lib.convolution.shapes import shape

    @cache
    def ask(name: str, batch: int, precision: str, layout: str, tuning: str):
        made = cudnn.convolution(shape(name), batch, Precision(precision), layout)
        try:
            begin = perf_counter()
            offered = made.choose(Tuning(tuning))
            return perf_counter() - begin, offered
        finally:
            made.close()

    return ask


@pytest.fixture(scope="module")
def arrays() -> Callable[[str, int], tuple]:
    """Input and weight of a shape on the host, drawn once."""
    from bench_lib.convolution.path_convolution import numbers

    return cache(numbers)


@pytest.fixture
def placed(cudnn, gpu: Gpu, arrays, batch: int, precision: str, layout: str) -> Iterator[Callable]:
    """Shape and algorithm -> the convolution with its numbers on the device, freed after the case."""
    from bench_lib.convolution.path_convolution import PathConvolution

    asked, made = Precision(precision), []
    check_supported(asked, "cuda", gpu.context.compute_capability)

    def synchronize() -> None:
        gpu.context.synchronize(0)  # copies go through the default stream
        gpu.synchronize()

    def place(shape: str, algorithm: Algorithm) -> PathConvolution:
        one = PathConvolution(cudnn, gpu.context, shape, arrays(shape, batch), asked, layout, synchronize)
        made.append(one)
        one.place(algorithm)
        return one

    yield place
    synchronize()
    for one in made:
        one.close()


PATH_FORMS = pytest.mark.parametrize(
    ("precision", "layout"),
    [
        ("fp32", "nchw"),
        ("tf32", "nchw"),
        ("fp16", "channels_last"),
        pytest.param("fp32", "channels_last", marks=pytest.mark.full),
        pytest.param("tf32", "channels_last", marks=pytest.mark.full),
        ("fp16", "nchw"),
    ],
)


@pytest.mark.core(shape=BY_PATH[:3], precision=["fp32", "tf32"], layout="nchw")
@pytest.mark.core(shape=BY_PATH[:3], precision="fp16", layout="channels_last")
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize("benchmark_", ["off", "on"])
@pytest.mark.parametrize("shape", BY_PATH)
@PATH_FORMS
@BATCH
def bench_conv_by_path(bench, cudnn, chosen, placed, shape, batch, precision, layout, benchmark_, metric):
    """One forward convolution of cuDNN by path: the heuristic's first choice, or find's."""
    _, offered = chosen(shape, batch, precision, layout, benchmark_)
    made = placed(shape, offered[0])
    error, checksum = made.check()
    bench.quantity("relative_error", error)
    bench.quantity("workspace_nbytes", made.workspace_nbytes)
    tried = (f"{one} {one.seconds * 1e6:.1f} us" if one.seconds else str(one) for one in offered)
    facts = {"algorithm": str(offered[0]), "offered": "; ".join(tried), "checksum": checksum}
    bench.facts({**facts, "cudnn": cudnn.version, "cudnn.cudart": cudnn.cudart})
    bench(made.run, timing="cold", flop=made.flop)


@ONCE
@pytest.mark.parametrize("metric", ["tuning"])
@pytest.mark.parametrize("benchmark_", ["off", "on"])
@pytest.mark.parametrize("shape", BY_PATH)
@PATH_FORMS
@BATCH
def bench_choice_by_path(bench, chosen, gpu, shape, batch, precision, layout, benchmark_, metric) -> None:
    """The call that chooses: the heuristic's, or find's, which runs what there is."""
    from bench_lib.convolution.conv_worker import Chosen

    check_supported(Precision(precision), "cuda", gpu.context.compute_capability)
    record_once(bench, Chosen(chosen(shape, batch, precision, layout, benchmark_)[0]))
