"""This suite's times beside nvbench's, of the same work on the same GPU: do two rulers agree?

`empty`, an empty kernel; `spin`, a kernel of a known number of cycles; `conv`, a convolution of
ResNet-50 in torch. `cold`: device time of one call on a flushed L2; `batch`: device time a call, back
to back. nvbench (package cuda-bench) measures in a process of its own. The two are shown side by side
(`cuda-gains chart cross-check`) and never judged against one another: they are two methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.errors import NotApplicable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench_lib.cross_check.asking import Found
    from bench_lib.device.gpu import Gpu
    from bench_lib.device.kernels import Cubin
    from bench_lib.model import Policy
    from bench_lib.stacking.stacks import StackEntry

FAMILY = "cross_check"
MARGIN = 0.02
TOOLS = ["ours", "nvbench"]
KERNELS = ["empty", "spin"]
QUEUED = 20  # calls a sample of ours, in a batch

pytestmark = pytest.mark.opt_in


@pytest.fixture(scope="module")
def nvbench(gpu: Gpu, cubin: Cubin, campaign_folder: Path, bench_policy: Policy) -> Callable[..., Found]:
    """What nvbench measures of some works, in one child; asked once."""
    from bench_lib.cross_check import asking
    from bench_lib.device import kernels
    from bench_lib.running.outcomes import Outcomes

    answers: Outcomes[Found] = Outcomes()
    path = kernels.cubin_path(gpu.context, campaign_folder)
    return lambda *works: answers.of(works, lambda: asking.measure(works, path, bench_policy))


def beside(bench: Any, gpu: Gpu, cubin: Cubin, nvbench: Callable[..., Found], works: list[str]) -> None:
    """Measure the op of the case, one of the works of one child of nvbench, by its tool and metric."""
    from bench_lib.cross_check import asking
    from bench_lib.cross_check.works import ready

    op, metric = bench.case.op, bench.case.metric
    if bench.case.params["tool"] == "nvbench":
        bench.fact("cuda_bench.version", asking.require())
        bench.record(asking.taken(nvbench(*works), op, metric))
        return
    with ready(op, gpu.context, cubin, gpu.stream) as call:
        bench(call, timing=metric, calls=QUEUED if metric == "batch" else 1)


@pytest.mark.core
@pytest.mark.parametrize("metric", ["cold"])
@pytest.mark.parametrize("tool", TOOLS)
def bench_empty(bench, gpu: Gpu, cubin: Cubin, nvbench, tool: str, metric: str) -> None:
    """An empty kernel of one thread: what two events and a launch take at least."""
    beside(bench, gpu, cubin, nvbench, KERNELS)


@pytest.mark.core
@pytest.mark.parametrize("metric", ["cold", "batch"])
@pytest.mark.parametrize("tool", TOOLS)
def bench_spin(bench, gpu: Gpu, cubin: Cubin, nvbench, tool: str, metric: str) -> None:
    """A kernel that ends after a million cycles of its SM: as long for every tool."""
    beside(bench, gpu, cubin, nvbench, KERNELS)


@pytest.mark.parametrize("metric", ["cold", "batch"])
@pytest.mark.parametrize("tool", TOOLS)
def bench_conv(
    bench, gpu: Gpu, cubin: Cubin, nvbench, torch, stack: StackEntry, tool: str, metric: str
) -> None:
    """A 3x3 convolution, fp16, channels_last, batch 64, the algorithm by cuDNN's heuristic."""
    if not torch.backends.cudnn.is_available():
        raise NotApplicable(f"the torch of stack {stack.name} has no cuDNN")
    beside(bench, gpu, cubin, nvbench, ["conv"])
