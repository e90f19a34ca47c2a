"""A training step under fully_shard: what gathering weights and scattering gradients costs, and is hidden.

ResNet-50 and a Transformer, their blocks sharded one by one, computing in bf16 with weights and
optimizer in fp32. Read it with `--contrast strategy=none:fully-shard`: `none` is fully_shard over a
world of one rank, in turns with it: the same step, but nothing is gathered (and each rank updates all
weights, not its share). The metric `communication` is the collectives of a step alone.
Ranks: --ranks, one a GPU; on the CPU two, over gloo.
"""

import pytest

from bench_lib.convolution.precision import Precision
from bench_lib.ranks_steps import cases
from bench_lib.ranks_steps.arms import FSDP_STRATEGIES
from bench_lib.ranks_steps.networks import Setup

FAMILY = "fsdp_step"
MARGIN = 0.02
PRECISIONS = {"cuda": Precision.BF16, "cpu": Precision.BF16}
measured = cases.measured  # the fixture


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Networks, batch and precision of the device that is measured; each strategy's metrics."""
    cases.for_device(metafunc, FSDP_STRATEGIES, PRECISIONS)


@pytest.mark.budget(900)  # the case that comes first measures its whole set
@pytest.mark.core(metric="step")
def bench_step(bench, measured, network: str, batch: int, precision: str, strategy: str, metric: str) -> None:
    """Forward, backward and SGD; or the collectives of a step alone."""
    measured(Setup(network, batch, Precision(precision), sharded=True)).record(bench, strategy, metric)
