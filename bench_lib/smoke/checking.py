"""The checks by name, what a rank answers when it is asked for one, and the series of a check that passed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_lib.errors import NotApplicable, Unavailable
from bench_lib.model import Series, Timing
from bench_lib.ranks import interconnect
from bench_lib.ranks.group import Ranks
from bench_lib.ranks.member import Handler, Member
from bench_lib.smoke import sharded, training

CHECK_SECONDS = 120.0

_CHECKS: Mapping[str, Callable[[Member], str]] = {
    "sharding": sharded.sharding,
    "product": sharded.product,
    "tensor-parallel": sharded.tensor_parallel,
    "fully-shard": training.fully_shard,
    "mixed-precision": training.mixed_precision,
}
_WITH_FOLDER: Mapping[str, Callable[[Member, Path], str]] = {
    "checkpoint": training.checkpoint,
    "resharding": training.resharding,
}
CHECKS = (*_CHECKS, *_WITH_FOLDER)


@dataclass(frozen=True)
class Asked:
    """Asks a rank for one of CHECKS; `folder` is one that all ranks see."""

    check: str
    folder: str


@dataclass(frozen=True)
class Passed:
    """A check that passed on this rank: the seconds it took, and what was seen."""

    seconds: float
    told: str


def make(member: Member) -> Handler:
    """The handler of a rank; torch's group is up."""
    if member.device != "cuda":
        member.torch.set_num_threads(1)  # ranks of one machine share its cores

    def answer(asked: Any) -> Passed:
        """Tried twice: the first time imports and connects what is needed, the second is timed."""
        tried(member, asked.check, Path(asked.folder) / "first")
        member.torch.distributed.barrier()
        begin = perf_counter()
        told = tried(member, asked.check, Path(asked.folder) / "second")
        return Passed(perf_counter() - begin, told)

    return answer


def tried(member: Member, check: str, folder: Path) -> str:
    """One of CHECKS on this rank, what was seen; see the checks for what they raise."""
    return _CHECKS[check](member) if check in _CHECKS else _WITH_FOLDER[check](member, folder)


def checked(ranks: Ranks, check: str, folder: Path) -> Series:
    """A check on all ranks; the seconds of the slowest. Raises what a rank raised where it fails."""
    ranks.start()
    if check in _WITH_FOLDER and ranks.interconnect == interconnect.NETWORK:
        raise Unavailable("the ranks are on several hosts, and no folder is known to be shared by them")
    found: list[Passed] = ranks.ask(Asked(check, str(folder)), CHECK_SECONDS)
    slowest = max(one.seconds for one in found)
    facts = {f"check.{check}": f"passed: {found[0].told}", "topology": ranks.topology}
    return Series((slowest,), timing=Timing.HOST, facts=facts)


def group(world: Any, backend: str) -> Ranks:
    """The ranks of a backend: gloo on the CPU, NCCL on one GPU each; NotApplicable for a lone gloo rank."""
    device = "cpu" if backend == "gloo" else "cuda"
    size = world.size(device)
    if size == 1 and device == "cpu":
        raise NotApplicable("one rank shards nothing; leave --ranks out, or give it 2 or more")
    return Ranks(world, make, size=size, device=device, backend=backend)
