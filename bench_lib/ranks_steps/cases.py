"""What `ddp_step` and `fsdp_step` share: parameters by device, and one measurement a network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from bench_lib.compiling.executions import told
from bench_lib.convolution.precision import Precision
from bench_lib.errors import CudaGainsError
from bench_lib.model import Policy
from bench_lib.ranks.group import Ranks
from bench_lib.ranks_steps import measuring, trainer
from bench_lib.ranks_steps.measuring import Key, Outcome, metrics
from bench_lib.ranks_steps.networks import RESNET50, SMALL, TRANSFORMER, Setup
from bench_lib.running.outcomes import given
from bench_lib.stack_packages import need_distributed

if TYPE_CHECKING:
    from bench_lib.ranks.world import World
    from bench_lib.running.bench import Bench
    from bench_lib.stacking.stacks import StackEntry

BATCHES = {"cuda": {RESNET50: 64, TRANSFORMER: 16}, "cpu": {SMALL: 4}}  # of a rank
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True)
class Found:
    """What was measured of one set-up, over which ranks."""

    outcomes: Mapping[Key, Outcome]
    ranks: int
    interconnect: str
    facts: Mapping[str, str]

    def record(self, bench: "Bench", strategy: str, metric: str) -> None:
        """Give a case its series; raises what it ended with otherwise."""
        bench.over(self.ranks, self.interconnect)
        bench.facts(self.facts)
        bench.record(given(self.outcomes[strategy, metric]))


def for_device(
    metafunc: pytest.Metafunc, strategies: Sequence[str], precisions: Mapping[str, Precision]
) -> None:
    """Parametrize with networks, batches and precision of the device, and each strategy's metrics."""
    plugin: Any = metafunc.config.pluginmanager.get_plugin("cuda-gains")
    device = plugin.target.device
    metafunc.parametrize(("network", "batch"), list(BATCHES[device].items()))
    metafunc.parametrize("precision", [str(precisions[device])])
    metafunc.parametrize(("strategy", "metric"), [key for one in strategies for key in metrics(one)])


@pytest.fixture(scope="module")
def measured(
    request: pytest.FixtureRequest,
    world: "World",
    stack: "StackEntry",
    on_gpu: bool,
    bench_policy: Policy,
    order_seed: int,
) -> Callable[[Setup], Found]:
    """A set-up -> what was found of it: measured when it is first asked for, all strategies in turns."""
    need_distributed(stack)
    device, strategies = "cuda" if on_gpu else "cpu", _selected(request)
    return cache(lambda setup: measure(world, device, setup, strategies, bench_policy, order_seed))


def _selected(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The strategies of the cases that run in this file; the others need not be measured."""
    own = [item for item in request.session.items if item.path == request.path]
    params = (item.callspec.params for item in own if hasattr(item, "callspec"))
    return tuple(dict.fromkeys(one["strategy"] for one in params))


def measure(
    world: "World", device: str, setup: Setup, strategies: Sequence[str], policy: Policy, seed: int
) -> Found:
    """Every strategy over the ranks of this run, in turns; where there can be no ranks, why, for each."""
    size, backend = world.size(device), BACKENDS[device]
    with Ranks(world, trainer.make, setup, size=size, device=device, backend=backend) as ranks:
        try:
            ranks.start()
        except CudaGainsError as error:
            keys = [key for one in strategies for key in metrics(one)]
            return Found(dict.fromkeys(keys, told(setup.name, error)), size, "", {"backend": backend})
        outcomes = measuring.measure(ranks, setup, strategies, policy, seed)
        return Found(outcomes, size, ranks.interconnect, {"topology": ranks.topology, "backend": backend})
