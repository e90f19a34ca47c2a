"""Several processes that share one GPU: time-sliced, and as clients of NVIDIA's multi-process service.

Opt-in: measured only with `--family mps`, as it starts a control daemon of its own, in folders of its
own and as the user it runs as, and quits it at the end, whatever that is. It never touches the compute
mode. Metrics: `per_request`, wall time a request of all clients together (its inverse is their
throughput); `latency`, the time of one request for its client; `latency_p99`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.errors import CudaGainsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench_lib.device.gpu import Gpu
    from bench_lib.mps.sharing import Sharing
    from bench_lib.stacking.stacks import StackEntry

FAMILY = "mps"
MARGIN = 0.05
CLIENTS = [1, 2, 4]
WAYS = ["time_sliced", "mps"]
METRICS = ["per_request", "latency", "latency_p99"]
TURNS, QUICK_TURNS = 7, 5
WINDOW_SECONDS, QUICK_WINDOW_SECONDS = 0.2, 0.1

pytestmark = [pytest.mark.opt_in, pytest.mark.margin(0.1, metric="latency_p99")]


@pytest.fixture(scope="module")
def sharing(gpu: Gpu) -> Iterator[Sharing]:
    """As many clients of both ways as any case needs, and the daemon."""
    from bench_lib.mps import sharing

    uuid = gpu.context.uuid
    command = sharing.check(uuid, gpu.context.compute_capability, gpu.telemetry.describe())
    made = sharing.Sharing(command, uuid, max(CLIENTS))
    yield made
    if trouble := made.close():
        raise CudaGainsError(trouble)


@pytest.fixture(scope="module")
def products(sharing: Sharing, stack: StackEntry) -> dict[str, str]:
    """What the clients need for matrix products, their memory taken: it is no case's own."""
    from bench_lib.cublas import library

    found = library.locate(stack)
    asked = {"work": "gemm", "cublas": str(found.cublas), "cublaslt": str(found.cublaslt)}
    sharing.prepare(max(CLIENTS), asked)
    return asked


def record(bench: Any, sharing: Sharing, asked: dict[str, str], clients: int, way: str, metric: str) -> None:
    """Record one series of the windows of both ways, or why its way has none."""
    from bench_lib.running.outcomes import given

    quick = bench.policy.name == "quick"
    turns, seconds = (QUICK_TURNS, QUICK_WINDOW_SECONDS) if quick else (TURNS, WINDOW_SECONDS)
    bench.record(given(sharing.measured(clients, asked, turns, seconds)[way])[metric])


@pytest.mark.core(clients=[1, 4])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("sharing_", WAYS)
@pytest.mark.parametrize("clients", CLIENTS)
def bench_small_kernels(
    bench, sharing: Sharing, campaign_folder: Path, clients: int, sharing_: str, metric: str
) -> None:
    """Each client launches small kernels, 20 a request, and waits for them."""
    asked = {"work": "small_kernels", "folder": str(campaign_folder)}
    record(bench, sharing, asked, clients, sharing_, metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("sharing_", WAYS)
@pytest.mark.parametrize("clients", CLIENTS)
def bench_gemm(bench, sharing: Sharing, products, clients: int, sharing_: str, metric: str) -> None:
    """Each client multiplies matrices of 1024 rows in fp32, 10 products a request."""
    record(bench, sharing, products, clients, sharing_, metric)
