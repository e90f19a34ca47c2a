"""What is said to work over ranks, tried: DTensor, tensor parallelism, fully_shard, distributed checkpoints.

Each case is a check that passes or fails: the same is computed by one rank alone, and a difference is a
`wrong-result`; what this torch does not have is `not-applicable`, with the version that has it. The time is
that of the slowest rank, for one check. Ranks: over gloo on the CPU, two unless --ranks says otherwise;
over NCCL one a GPU.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from bench_lib.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench_lib.ranks.group import Ranks

FAMILY = "dtensor_fsdp_smoke"
MARGIN = 0.10
pytestmark = [
    pytest.mark.needs_gpu(backend="nccl"),
    pytest.mark.budget(300),
]  # the first case starts the ranks

CHECKS = (
    *("sharding", "product", "tensor-parallel"),
    *("fully-shard", "mixed-precision", "checkpoint", "resharding"),
)


@pytest.fixture(scope="module")
def groups(world, stack, on_gpu: bool) -> Iterator[Callable[[str], Ranks]]:
    """The ranks of a backend, started when they are first asked."""
    from bench_lib.smoke import checking
    from bench_lib.stack_packages import need_distributed

    made: list[Ranks] = []

    @cache
    def get(backend: str) -> Ranks:
        need_distributed(stack)
        if backend == "nccl" and not on_gpu:
            raise Unavailable("no GPU: NCCL connects GPUs")
        made.append(checking.group(world, backend))
        return made[-1]

    yield get
    for ranks in made:
        ranks.close()


@pytest.mark.core(backend="gloo")
@pytest.mark.parametrize("metric", ["time"])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("check", CHECKS)
def bench_check(bench, groups, tmp_path: Path, check: str, backend: str, metric: str) -> None:
    """One check on all ranks."""
    from bench_lib.smoke.checking import checked

    ranks = groups(backend).start()
    bench.over(ranks.size, ranks.interconnect)
    bench.record(checked(ranks, check, tmp_path / check))
