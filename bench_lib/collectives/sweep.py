"""The collectives of a run: one group of ranks an API, brought up once, used for every size.

A group that was ended by a fault comes up again for the next case; what its start took is told once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench_lib.collectives import native_rank, torch_rank
from bench_lib.collectives.asked import Collective, Connect, Loaded, NewId, Roll, SetUp, Versions, calls
from bench_lib.errors import CudaGainsError
from bench_lib.measure import measure
from bench_lib.model import Policy, Series, Timing, Work
from bench_lib.ranks.group import Ranks
from bench_lib.ranks.timing import Sampled
from bench_lib.ranks.world import World
from bench_lib.telemetry import Reader

SET_UP_SECONDS = 120.0  # numbers of a gigabyte written, reduced, read and compared
TAKE_SECONDS = 30.0  # one sample; longer is a hang
COMPILE_SECONDS = 400.0  # PTX of all of NCCL's kernels took the driver 40 s

# A build without code for the GPU is compiled by the driver, and the default cache is too small for it.
CACHE = {"CUDA_CACHE_MAXSIZE": "4294967296"}


@dataclass(frozen=True)
class Start:
    """What the start of a group took, on its slowest rank."""

    init_seconds: float
    first_seconds: float
    facts: dict[str, str] = field(default_factory=dict)


class Group:
    """The ranks of one API; `libraries` are the NCCLs that are called by path, none for torch's."""

    def __init__(
        self,
        world: World,
        device: str,
        backend: str,
        libraries: Sequence[Loaded] = (),
        largest_nbytes: int = 8,
    ) -> None:
        self._libraries, self._largest = tuple(libraries), largest_nbytes
        size = world.size(device)
        if libraries:
            made = (native_rank.make, self._libraries)
            self.ranks = Ranks(world, *made, size=size, device=device, variables=CACHE)
        else:
            self.ranks = Ranks(world, torch_rank.make, size=size, device=device, backend=backend)
        self._start: dict[str, Start] = {}

    def connected(self) -> Ranks:
        """The ranks, up and checked. Raises what `Ranks.ask` raises."""
        if not self.ranks.started:
            self.ranks.start()
            for name in [one.name for one in self._libraries] or [""]:
                start = self._connect(name)
                self._start.setdefault(name, start)
        return self.ranks

    def start(self, library: str = "") -> Start:
        """What the first start took; of the first library unless one is named."""
        self.connected()
        return self._start[library or next(iter(self._start))]

    def _connect(self, name: str) -> Start:
        ranks = self.ranks
        unique_id = ranks.ask_one(0, NewId(name), TAKE_SECONDS) if self._libraries else b""
        answers = ranks.ask(Connect(unique_id, name, self._largest), SET_UP_SECONDS)
        roll = ranks.ask(Roll(), TAKE_SECONDS)
        if roll != [(rank, ranks.size) for rank in range(ranks.size)]:
            ranks.close()
            raise CudaGainsError(
                f"{ranks.size} ranks were started, and their communicators say (rank, size) {roll}: they are "
                "not connected to each other; start all of them alike"
            )
        init, first = (max(times) for times in zip(*answers, strict=True))
        facts = {**ranks.ask_one(0, Versions(), TAKE_SECONDS), "topology": ranks.topology}
        return Start(init, first, facts)

    def series(
        self, asked: Collective, policy: Policy, telemetry: Reader | None, budget_seconds: float
    ) -> Series:
        """A collective, its result checked exactly, then timed: an iteration is the slowest rank's.

        Raises WrongResult before any timing.
        """
        ranks, n = self.connected(), calls(asked.nbytes)
        library = self._libraries[0].name if self._libraries else ""
        ranks.ask(SetUp(asked, n, library), SET_UP_SECONDS)
        timer = Sampled(ranks, Timing.NATIVE if library else Timing.HOST, n, TAKE_SECONDS)
        found = measure(_nothing, timer, policy, telemetry, Work(nbytes=asked.actual_nbytes), budget_seconds)
        facts = {**self.start().facts, "over_ranks": "max"}
        return replace(found, facts=facts, warnings=(*found.warnings, *doubts(facts)))


def compiled(world: World, library: Loaded) -> Start:
    """What a library takes in one process alone: a build without code for the GPU is compiled there.

    Two ranks that do that at once hinder each other; afterwards the driver has it in its cache.
    """
    ranks = Ranks(world, native_rank.make, (library,), size=1, device="cuda", variables=CACHE)
    with ranks:
        unique_id = ranks.ask_one(0, NewId(library.name), TAKE_SECONDS)
        init, first = ranks.ask(Connect(unique_id, library.name), COMPILE_SECONDS)[0]
        return Start(init, first, ranks.ask_one(0, Versions(), TAKE_SECONDS))


def doubts(facts: dict[str, str]) -> list[str]:
    """Versions of NCCL that do not agree, one sentence each."""
    loaded = facts.get("nccl.version", "")
    others = {"torch was built with": facts.get("nccl.header"), "pip has": facts.get("nccl.pip")}
    return [
        f"{who} NCCL {version}, and {loaded} is loaded"
        for who, version in others.items()
        if version and loaded and not version.startswith(loaded)
    ]


def loaded(path: Path) -> Loaded:
    """A library that is the only one of its group."""
    return Loaded("nccl", path)


def _nothing() -> None:
    return None
