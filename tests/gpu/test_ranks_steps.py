"""Training steps over the GPUs of this machine, one rank a GPU: over NCCL, checked and timed.

With one GPU nothing moves between ranks: the whole code runs, and communication costs next to nothing.
"""

from statistics import median

import pytest

from bench_lib.convolution.precision import Precision
from bench_lib.model import Policy, Series, Timing
from bench_lib.ranks_steps import arms, cases
from bench_lib.ranks_steps.networks import RESNET50, TRANSFORMER, Setup

POLICY = Policy("test", samples=8, budget_seconds=20.0, min_samples=5, max_warmup_seconds=1.0)
FAMILIES = {
    "ddp": (Precision.BF16_AUTOCAST, False, arms.DDP_STRATEGIES),
    "fsdp": (Precision.BF16, True, arms.FSDP_STRATEGIES),
}

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def world():
    from bench_lib.ranks.world import World

    pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    made = World()
    yield made
    made.close()


@pytest.mark.parametrize("network", [RESNET50, TRANSFORMER])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_strategy_trains_over_nccl(world, family, network, capsys):
    precision, sharded, strategies = FAMILIES[family]
    setup = Setup(network, cases.BATCHES["cuda"][network], precision, sharded)

    found = cases.measure(world, "cuda", setup, strategies, POLICY, seed=1)

    for outcome in found.outcomes.values():
        if isinstance(outcome, Exception):
            raise outcome
    steps = {s: one for (s, metric), one in found.outcomes.items() if metric == "step"}
    assert set(steps) == set(strategies)
    for strategy, one in steps.items():
        assert isinstance(one, Series)
        assert one.timing is Timing.BATCH
        assert one.quantities["peak_nbytes"] > 4 * 20e6  # the weights alone are more than that
        assert 1e-3 < median(one.seconds) < 2.0, strategy
    assert (found.ranks > 1) == (found.interconnect in ("nvlink", "pcie"))
    with capsys.disabled():
        for strategy, one in steps.items():
            told = ", ".join(f"{name} {value:.4g}" for name, value in sorted(one.quantities.items()))
            print(f"\n{network}, {strategy}, {found.ranks} ranks: {median(one.seconds) * 1e3:.2f} ms; {told}")


def test_on_one_gpu_communication_is_next_to_nothing(world):
    if world.size("cuda") > 1:
        pytest.skip("this machine has several GPUs")
    precision, sharded, _ = FAMILIES["ddp"]
    setup = Setup(TRANSFORMER, cases.BATCHES["cuda"][TRANSFORMER], precision, sharded)

    outcomes = cases.measure(world, "cuda", setup, ["none", "buckets"], POLICY, seed=2).outcomes

    ratio = median(outcomes["buckets", "step"].seconds) / median(outcomes["none", "step"].seconds)
    assert 0.9 < ratio < 1.3  # DDP copies gradients into its buckets
    assert "overlap_share" not in outcomes["buckets", "step"].quantities
