"""The collectives of a run: one group of ranks an API, brought up once, used for every size.

A group that was ended by a fault comes up again for the next case; what its start took is told once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from bench_lib.collectives import native_rank, torch_rank
from bench_lib.collectives.asked import Collective, Connect, Loaded, NewId, Roll, SetUp, Versions, calls
from bench_lib.device.telemetry import Reader
from bench_lib.errors import Crashed, CudaGainsError, Hung, Unavailable
from bench_lib.model import Policy, Series, Timing, Work
from bench_lib.ranks.group import Ranks
from bench_lib.ranks.timing import Sampled
from bench_lib.ranks.world import World
from bench_lib.timing.measure import measure
from bench_lib.timing.timer import nothing

SET_UP_SECONDS = 120.0  # numbers of a gigabyte written, reduced, read and compared
MOST_FAULTS = 3
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

    def series(self, metric: str) -> Series:
        """One of the two times, `init` or `first`, as the series of a case."""
        seconds = self.init_seconds if metric == "init" else self.first_seconds
        return Series((seconds,), timing=Timing.HOST, facts=self.facts)


class Faults:
    """Faults in a row: after a few, nothing is tried any more, for each takes until its time is over."""

    def __init__(self) -> None:
        self._last: Exception | None = None
        self._n = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is done inside; raises what the last fault was once there were MOST_FAULTS in a row.

        What keeps ranks from a collective at all (Unavailable) is not looked for a second time.
        """
        if self._last is not None and (self._n >= MOST_FAULTS or isinstance(self._last, Unavailable)):
            raise type(self._last)(f"{str(self._last).splitlines()[0]} (before; not tried again)")
        try:
            yield
        except (Crashed, Hung, Unavailable) as error:
            self._last, self._n = error, self._n + 1
            raise
        self._last, self._n = None, 0


class Group:
    """The ranks of one API; `libraries` are the NCCLs that are called by path, none for torch's."""

    def __init__(
        self,
        world: World,
        device: str,
        backend: str = "",
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
        self._world, self.faults = world, Faults()

    @property
    def library(self) -> str:
        """The name of the first library that is called by path, "" where it is torch that calls."""
        return self._libraries[0].name if self._libraries else ""

    def connected(self) -> Ranks:
        """The ranks, up and checked. Raises what `Ranks.ask` raises."""
        if not self.ranks.started:
            with self.faults.counted():
                self._bring_up()
        return self.ranks

    def _bring_up(self) -> None:
        if len(self._libraries) == 1 and self.ranks.size > 1 and not self._start:
            compiled(self._world, self._libraries[0])
        self.ranks.start()
        for name in [one.name for one in self._libraries] or [""]:
            start = self._connect(name)
            self._start.setdefault(name, start)

    def start(self, library: str = "") -> Start:
        """What the first start took; of the first library unless one is named."""
        self.connected()
        return self._start[library or next(iter(self._start))]

    def _connect(self, name: str) -> Start:
        ranks = self.ranks
        unique_id = ranks.ask_first(NewId(name), TAKE_SECONDS) if self._libraries else b""
        answers = ranks.ask(Connect(unique_id, name, self._largest), SET_UP_SECONDS)
        roll = ranks.ask(Roll(), TAKE_SECONDS)
        if roll != [(rank, ranks.size) for rank in range(ranks.size)]:
            ranks.close()
            raise CudaGainsError(
                f"{ranks.size} ranks were started, and their communicators say (rank, size) {roll}: they are "
                "not connected to each other; start all of them alike"
            )
        init, first = (max(times) for times in zip(*answers, strict=True))
        facts = {**ranks.ask_first(Versions(), TAKE_SECONDS), "topology": ranks.topology}
        return Start(init, first, facts)

    def series(
        self, asked: Collective, policy: Policy, telemetry: Reader | None, budget_seconds: float
    ) -> Series:
        """A collective, its result checked exactly, then timed: an iteration is the slowest rank's.

        Raises WrongResult before any timing.
        """
        ranks, n = self.connected(), calls(asked.nbytes)
        timer = Sampled(ranks, Timing.NATIVE if self.library else Timing.HOST, n, TAKE_SECONDS)
        work = Work(nbytes=asked.actual_nbytes)
        with self.faults.counted():
            ranks.ask(SetUp(asked, n, self.library), SET_UP_SECONDS)
            found = measure(nothing, timer, policy, telemetry, work, budget_seconds)
        facts = {**self.start().facts, "over_ranks": "max"}
        return replace(found, facts=facts, warnings=(*found.warnings, *doubts(facts)))


def compiled(world: World, library: Loaded) -> Start:
    """What a library takes in one process alone: a build without code for the GPU is compiled there.

    Two ranks that do that at once hinder each other; afterwards the driver has it in its cache.
    """
    ranks = Ranks(world, native_rank.make, (library,), size=1, device="cuda", variables=CACHE)
    with ranks:
        unique_id = ranks.ask_first(NewId(library.name), TAKE_SECONDS)
        init, first = ranks.ask(Connect(unique_id, library.name), COMPILE_SECONDS)[0]
        return Start(init, first, ranks.ask_first(Versions(), TAKE_SECONDS))


def doubts(facts: dict[str, str]) -> list[str]:
    """Versions of NCCL that do not agree, one sentence each."""
    loaded = facts.get("nccl.version", "")
    others = {"torch was built with": facts.get("nccl.header"), "pip has": facts.get("nccl.pip")}
    return [
        f"{who} NCCL {version}, and {loaded} is loaded"
        for who, version in others.items()
        if version and loaded and not version.startswith(loaded)
    ]
