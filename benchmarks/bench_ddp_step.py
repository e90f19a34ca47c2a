"""A training step under DistributedDataParallel: what communicating costs, and how much of it is hidden.

ResNet-50 and a Transformer, every rank with made-up data of its own. Read it with `--contrast
strategy=none:buckets`: `none` takes the same steps without communication, in turns with the others.
Strategies: torch's own buckets, one bucket, the fp16 compression hook, and `no-sync`, which takes the
batch in two passes and communicates in the second (beside `none-halved`). The metric `communication`
is the collectives of a step alone. Ranks: --ranks, one a GPU; on the CPU two, over gloo, in fp32.
"""

import pytest

from bench_lib.convolution.precision import Precision
from bench_lib.ranks_steps import cases
from bench_lib.ranks_steps.arms import DDP_STRATEGIES
from bench_lib.ranks_steps.networks import Setup

FAMILY = "ddp_step"
MARGIN = 0.02
PRECISIONS = {"cuda": Precision.BF16_AUTOCAST, "cpu": Precision.FP32}
measured = cases.measured  # the fixture


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Networks, batch and precision of the device that is measured; each strategy's metrics."""
    cases.for_device(metafunc, DDP_STRATEGIES, PRECISIONS)


@pytest.mark.budget(900)  # the case that comes first measures its whole set
@pytest.mark.core(strategy=["none", "buckets"], metric="step")
def bench_step(bench, measured, network: str, batch: int, precision: str, strategy: str, metric: str) -> None:
    """Forward, backward and SGD; or the collectives of a step alone."""
    measured(Setup(network, batch, Precision(precision))).record(bench, strategy, metric)
