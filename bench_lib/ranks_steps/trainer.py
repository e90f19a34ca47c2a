"""What a rank answers: it builds an arm when first asked for it, checks it, and times blocks of steps."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from bench_lib.convolution.precision import in_precision
from bench_lib.device.telemetry import Telemetry
from bench_lib.ranks.member import Handler, Member
from bench_lib.ranks_steps.arms import ALONE, NONE, WITHOUT, Arm, collectives
from bench_lib.ranks_steps.networks import Setup

STEP, COMMUNICATION = "step", "communication"


@dataclass(frozen=True)
class Build:
    """Asks for an arm, checked; answered with what was found out about it (`Built`)."""

    strategy: str


@dataclass(frozen=True)
class Built:
    """An arm that works: how far its gradient is from the mean of the ranks' own, and its memory."""

    error: float  # relative, of the norms
    peak_nbytes: int | None = None  # of a step, this arm alone; None on the CPU
    gradient_nbytes: int = 0


@dataclass(frozen=True)
class Block:
    """Asks for seconds a step of so many steps back to back, or of as many rounds of its collectives."""

    strategy: str
    metric: str
    steps: int


@dataclass(frozen=True)
class Weights:
    """Asks for a hash of an arm's weights."""

    strategy: str


@dataclass(frozen=True)
class Look:
    """Asks for a reading of this rank's GPU, and the highest clock it has."""


def make(member: Member, setup: Setup) -> Handler:
    """The handler of a rank; torch's group is up."""
    return Trainer(member, setup)


class Trainer:
    """The arms of one set-up on one rank."""

    def __init__(self, member: Member, setup: Setup) -> None:
        self._torch, self._member, self._setup = member.torch, member, setup
        self._arms: dict[str, Arm] = {}
        self._sends: dict[str, Callable[[], None]] = {}
        self._telemetry = _telemetry(member)
        self._cuda = member.device == "cuda"
        if not self._cuda:
            member.torch.set_num_threads(1)  # ranks of one machine share its cores

    def __call__(self, request: Any) -> Any:
        """The answer to a request of this module."""
        with in_precision(self._torch, self._setup.precision, self._member.device):
            if isinstance(request, Build):
                return self._build(request.strategy)
            if isinstance(request, Block):
                return self._block(request)
            if isinstance(request, Weights):
                return self._arm(request.strategy).digest()
        assert isinstance(request, Look)
        return self._telemetry.read(), self._telemetry.max_sm_clock_mhz

    def _arm(self, strategy: str) -> Arm:
        if strategy not in self._arms:
            self._arms[strategy] = Arm(self._member, self._setup, strategy)
        return self._arms[strategy]

    def _build(self, strategy: str) -> Built:
        before = self._allocated()
        arm = self._arm(strategy)
        error = self._error(strategy) if strategy not in ALONE else 0.0
        arm.step()  # the optimizer makes its state in it
        kept = self._allocated() - before
        nbytes = 4 * sum(arm.sizes)
        if not self._cuda:
            return Built(error, gradient_nbytes=nbytes)
        before = self._allocated()
        self._torch.cuda.reset_peak_memory_stats()
        arm.step()
        self._torch.cuda.synchronize()
        return Built(error, self._torch.cuda.max_memory_allocated() - before + kept, nbytes)

    def _error(self, strategy: str) -> float:
        """How far an arm's gradient is from the mean over the ranks of what each computes on its own."""
        found = self._arm(strategy).gradient()
        expected = Arm(self._member, self._setup, WITHOUT.get(strategy, NONE)).gradient()
        self._torch.distributed.all_reduce(expected)
        expected /= self._member.size
        gc.collect()  # the copy is gone before memory is counted
        return float((found - expected).norm() / expected.norm())

    def _block(self, asked: Block) -> float:
        """The ranks begin together; the device's time, or the host's on the CPU."""
        work = self._work(asked)
        self._torch.distributed.barrier()
        if not self._cuda:
            begin = perf_counter()
            for _ in range(asked.steps):
                work()
            return (perf_counter() - begin) / asked.steps
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._torch.cuda.synchronize()
        start.record()
        for _ in range(asked.steps):
            work()
        end.record()
        self._torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / asked.steps

    def _work(self, asked: Block) -> Callable[[], None]:
        arm = self._arm(asked.strategy)
        if asked.metric == STEP:
            return arm.step
        if asked.strategy not in self._sends:
            self._sends[asked.strategy] = collectives(self._member, self._setup, asked.strategy, arm.sizes)
        return self._sends[asked.strategy]

    def _allocated(self) -> int:
        return int(self._torch.cuda.memory_allocated()) if self._cuda else 0


def _telemetry(member: Member) -> Telemetry:
    if member.device != "cuda":
        return Telemetry()
    from bench_lib.device.driver import Driver

    return Telemetry.open(Driver.load().describe(member.local_rank).uuid)
