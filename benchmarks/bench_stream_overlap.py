"""What runs side by side: copies beside kernels on two streams, loading beside training.

Read it with `--contrast streams=one:two` and `--contrast workers=0:4`. Copies and kernels are made equally
long first, so the most that two streams can give is twice the pace. Copies of pinned memory to the GPU
are the control: where they stay under 1.5 times, no copy of this family is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_lib.model import Policy, Series

FAMILY = "stream_overlap"
MARGIN = 0.05


def shorter(policy: Policy) -> Policy:
    """The run's policy for samples of ten milliseconds and more."""
    from dataclasses import replace

    samples = min(policy.samples, 25)
    return replace(policy, samples=samples, budget_seconds=1.0, warmup_seconds=0.02, max_warmup_seconds=0.2)


@pytest.fixture(scope="module")
def passes(gpu, torch, bench_policy: Policy, order_seed: int) -> Callable[[str, str], Mapping[str, Series]]:
    """Series by number of streams of a kind of memory and a direction; the control is measured first."""
    from bench_lib.overlap import copying
    from bench_lib.running.outcomes import Outcomes

    engines = gpu.context.attribute(copying.ASYNC_ENGINE_COUNT)

    outcomes: Outcomes[Mapping[str, Series]] = Outcomes()

    def measure(memory: str, direction: str) -> Mapping[str, Series]:
        if (memory, direction) != copying.CONTROL:
            measured(*copying.CONTROL)
        made = copying.Passes(torch, memory, direction, copying.Size())
        turns, policy = f"{memory}-{direction}", shorter(bench_policy)
        found = copying.measured(made, gpu, policy, turns, order_seed, gpu.telemetry)
        if (memory, direction) == copying.CONTROL:
            copying.check_control(found, engines)
        return found

    def measured(memory: str, direction: str) -> Mapping[str, Series]:
        return outcomes.of((memory, direction), lambda: measure(memory, direction))

    return measured


@pytest.mark.core(direction="to_gpu")
@pytest.mark.parametrize("streams", ["one", "two"])
@pytest.mark.parametrize("direction", ["to_gpu", "to_cpu"])
@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def bench_copy_compute(bench, passes, memory: str, direction: str, streams: str) -> None:
    """Eight copies and as many runs of kernels, on one stream or on two."""
    bench.record(passes(memory, direction)[streams])


@pytest.mark.parametrize("metric", ["batch"])
@pytest.mark.parametrize("workers", [0, 1, 4])
def bench_dataloader(bench, torch, workers: int, metric: str) -> None:
    """A batch of a DataLoader with so many workers, and a training step on it."""
    from bench_lib.overlap import loading

    bench.parameter("batch", loading.BATCH[bench.device])
    bench.record(loading.fed(torch, bench.device, workers, shorter(bench.policy)))
