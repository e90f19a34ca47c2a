"""What one small kernel costs to launch: by API, by size of arguments, and as a CUDA graph.

Metrics: `submit`, host time of the call with the queue far from full; `launch_sync`, the call and
the wait for its end; `period`, device time a kernel of many queued ones; `first` and `init`, the
first launch of a fresh process and what comes before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.errors import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench_lib.device.cudart import Runtime
    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin

FAMILY = "launch"
MARGIN = 0.05
CALLS = 100  # a queue holds about a thousand launches
QUEUED = 256
ELEMENTS = 1024
METRICS = ["submit", "launch_sync", "period"]


@pytest.fixture(scope="module")
def raw(request: pytest.FixtureRequest, gpu: Gpu, cubin: Cubin) -> Callable[[str], Any]:
    """A raw API by name; each is set up once."""
    from functools import cache

    from bench_lib.launching.launch import CudartApi, DriverApi

    @cache
    def get(api: str) -> Any:
        if api == "driver":
            return DriverApi(cubin, gpu)
        return CudartApi(request.getfixturevalue("runtime"), cubin, gpu)

    return get


def measure_native(bench: Any, gpu: Gpu, call: Any, metric: str, calls: int = CALLS) -> None:
    """Measure one native call by one metric."""
    from bench_lib.device import native
    from bench_lib.launching.launch import synchronize_call

    sync = synchronize_call(gpu)
    if metric == "submit":
        bench.native(lambda: native.submit(call, calls, sync), calls=calls)
    elif metric in ("launch_sync", "total"):
        bench.native(lambda: native.launch_sync(call, sync, calls), calls=calls)
    else:
        bench(lambda: native.enqueue(call), timing="batch", calls=QUEUED)


@pytest.mark.core
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("api", ["cudart", "driver"])
def bench_empty(bench, gpu: Gpu, raw, api: str, metric: str) -> None:
    """An empty kernel without parameters."""
    measure_native(bench, gpu, raw(api).launch("empty"), metric)


@pytest.mark.core(nbytes=4096, metric="submit")
@pytest.mark.parametrize("metric", ["submit", "launch_sync"])
@pytest.mark.parametrize("nbytes", [8, 64, 512, 4096])
@pytest.mark.parametrize("api", ["cudart", "driver"])
def bench_arguments(bench, gpu: Gpu, raw, api: str, nbytes: int, metric: str) -> None:
    """An empty kernel with that many bytes of parameters."""
    measure_native(bench, gpu, raw(api).launch(f"args_{nbytes}"), metric)


@pytest.mark.core(nodes=[1, 100], metric=["submit", "total"])
@pytest.mark.parametrize("metric", ["instantiate", "submit", "total"])
@pytest.mark.parametrize("nodes", [1, 10, 100, 1000])
@pytest.mark.parametrize("api", ["cudart"])
def bench_graph(bench, gpu: Gpu, cubin: Cubin, runtime: Runtime, api: str, nodes: int, metric: str) -> None:
    """A CUDA graph of a straight line of empty kernels."""
    from time import perf_counter

    from bench_lib.device.native import Call

    key = runtime.register(cubin, ("empty",))["empty"]
    graph = runtime.graph(key, nodes, gpu.stream)

    def instantiate() -> float:
        start = perf_counter()
        executable = runtime.instantiate(graph)
        seconds = perf_counter() - start
        runtime.destroy_exec(executable)
        return seconds

    if metric == "instantiate":
        bench.native(instantiate, calls=1)
        return
    executable = runtime.instantiate(graph)
    call = Call(runtime.address("cudaGraphLaunch"), (executable, gpu.stream))
    measure_native(bench, gpu, call, metric, calls=max(1, CALLS // nodes))
    gpu.synchronize()
    runtime.destroy_exec(executable)


@pytest.fixture(scope="module")
def first(
    gpu: Gpu, cubin: Cubin, campaign_folder: Path
) -> Callable[[str, str, Path | None], dict[str, float]]:
    """Seconds of a fresh process's first launch, by API and module loading; one child each."""
    from functools import cache

    from bench_lib.device import kernels
    from bench_lib.launching import first_launch

    @cache
    def get(api: str, loading: str, library: Path | None) -> dict[str, float]:
        return first_launch.measure(kernels.cubin_path(gpu.context, campaign_folder), loading, library)

    return get


@pytest.mark.parametrize("metric", ["init", "first"])
@pytest.mark.parametrize("loading", ["lazy", "eager"])
@pytest.mark.parametrize("api", ["cudart", "driver"])
def bench_first(bench, request, first, api: str, loading: str, metric: str) -> None:
    """The first launch of a fresh process, context created; `init` is what precedes it."""
    from bench_lib.model import Series, Timing

    library = request.getfixturevalue("runtime").path if api == "cudart" else None
    bench.record(Series((first(api, loading, library)[metric],), timing=Timing.HOST))


@pytest.mark.core
@pytest.mark.parametrize("metric", ["submit", "launch_sync"])
@pytest.mark.parametrize("api", ["cupy"])
def bench_rawkernel(bench, gpu: Gpu, cupy, api: str, metric: str) -> None:
    """CuPy's RawKernel, an empty kernel compiled by its NVRTC."""
    kernel = cupy.RawKernel('extern "C" __global__ void empty() {}', "empty")
    one, none = (1,), ()
    measure_op(bench, lambda: kernel(one, one, none), metric, gpu.synchronize)


@pytest.fixture
def tensors(torch, on_gpu: bool) -> Any:
    """A few small tensors of seeded random numbers."""
    torch.manual_seed(0)
    return torch.randn(4, ELEMENTS, device="cuda" if on_gpu else "cpu")


def measure_op(bench: Any, op: Callable[[], object], metric: str, synchronize: Callable[[], None]) -> None:
    """Measure a Python-level op by one metric; on the CPU an op has no launch apart from its work."""
    if bench.device == "cpu" and metric != "submit":
        raise NotApplicable("on the CPU an op is done when it returns: there is nothing to wait for")
    if metric == "submit":
        bench(op, timing="host", calls=CALLS)
    elif metric == "period":
        bench(op, timing="batch", calls=QUEUED)
    else:

        def launch_sync() -> None:
            op()
            synchronize()

        bench(launch_sync, timing="host", calls=CALLS)


@pytest.fixture
def synchronize(request: pytest.FixtureRequest, on_gpu: bool) -> Callable[[], None]:
    """Wait for the suite's stream; nothing to wait for on the CPU."""
    return request.getfixturevalue("gpu").synchronize if on_gpu else lambda: None


@pytest.mark.core
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("api", ["torch"])
def bench_add(bench, tensors, synchronize, api: str, metric: str) -> None:
    """The smallest torch op: add one to one element, in place."""
    element = tensors[0, :1]
    measure_op(bench, lambda: element.add_(1), metric, synchronize)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("api", ["torch"])
def bench_multiply(bench, torch, tensors, synchronize, api: str, metric: str) -> None:
    """An element-wise op on a small tensor, written into a given output."""
    out = torch.empty_like(tensors[0])
    measure_op(bench, lambda: torch.mul(tensors[0], tensors[1], out=out), metric, synchronize)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("api", ["torch"])
def bench_layer_norm(bench, torch, tensors, synchronize, api: str, metric: str) -> None:
    """Layer norm over one small row."""
    row, shape, layer_norm = tensors[:1], (ELEMENTS,), torch.nn.functional.layer_norm
    with torch.no_grad():
        measure_op(bench, lambda: layer_norm(row, shape), metric, synchronize)
