"""N ranks that are asked together: `Ranks(world, make, ...)`, then `ask(request, seconds)`.

    def make(member, nbytes):          # module-level, runs in each rank; torch's group is up by then
        tensor = member.torch.ones(nbytes // 4, device=member.torch_device)
        return lambda request: ...     # what a request is answered with

    with Ranks(world, make, 1024, backend="gloo", size=2) as ranks:
        one, other = ranks.ask("reduce", seconds=30)

A rank that dies, hangs or raises ends all of them within a stated time, and raises Crashed, Hung or what
it raised, the last lines of its log behind the first; the next `ask` starts fresh ranks.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Self

from bench_lib.errors import HARMLESS, Crashed, CudaGainsError, Hung, Unavailable, retold
from bench_lib.ranks import interconnect, preflight
from bench_lib.ranks.interconnect import Links
from bench_lib.ranks.life import Lead, Make
from bench_lib.ranks.member import Facts, Handler, Joining, Spec
from bench_lib.ranks.seat import Lost, Seat

if TYPE_CHECKING:
    from bench_lib.ranks.world import World

START_SECONDS = 120.0  # torch's import on a cold disk
JOIN_SECONDS = 180.0  # NCCL over many ranks
GRACE_SECONDS = 3.0  # for the other ranks to fail too, once one has
_WORDS = 300  # of a log, told in the first line

# A process that times does not log; a warning is printed only when something is wrong.
_QUIET = {"NCCL_DEBUG": "WARN"}


class Ranks:
    """N processes with one handler each, started when first asked. Close it, or use it as a context."""

    def __init__(
        self,
        world: "World",
        make: Callable[..., Handler],
        *arguments: Any,
        size: int,
        device: str = "cpu",
        backend: str = "",
        check: bool | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`backend`: nccl or gloo of torch.distributed; "": processes without torch, on their own.

        `check` says whether what keeps NCCL from running is looked for (default: on device cuda).
        `variables` are added to the environment of the ranks; what the user has set there stays.
        """
        self._world, self._make, self._arguments = world, make, arguments
        self.size, self.device, self.backend = size, device, backend
        self._check = device == "cuda" if check is None else check
        self._variables = {**_QUIET, **(variables or {})}
        self._seats: list[Seat] = []
        self.facts: list[Facts] = []  # by rank, once started; so are these two
        self.interconnect = ""  # what connects the ranks: for the case's key
        self.topology = ""  # in words
        self.init_seconds: list[float] = []  # of init_process_group, by rank, once started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def started(self) -> bool:
        """Whether the processes are there."""
        return bool(self._seats)

    def start(self) -> Self:
        """Start the ranks, look for what keeps them from a collective, bring the group up.

        Raises Unavailable with that sentence; Crashed, Hung or what a rank raised.
        """
        if self._seats:
            return self
        seats = self._world.seats(self.size)
        places = self._world.places(self.size, self.device, self.backend)
        try:
            for seat, place in zip(seats, places, strict=True):
                self._seats.append(seat)
                seat.start(Spec(place, self._make, self._arguments, self._variables))
        except OSError as error:
            self.close()
            raise CudaGainsError(f"the processes of {self.size} ranks cannot be started: {error}") from None
        self.facts = self._hear(range(self.size), START_SECONDS)
        self._look()
        if self.backend:
            port = self.ask_first(Lead(), START_SECONDS)
            self.init_seconds = self.ask(Joining(self._world.host, port, JOIN_SECONDS), JOIN_SECONDS)
        self.ask(Make(), JOIN_SECONDS)
        return self

    def ask(self, request: Any, seconds: float) -> list[Any]:
        """The answers of all ranks, in their order. See the module for what it raises."""
        self.start()
        return self._round(dict.fromkeys(range(self.size), request), seconds)

    def ask_first(self, request: Any, seconds: float) -> Any:
        """The answer of rank 0; the others are not asked."""
        self.start()
        return self._round({0: request}, seconds)[0]

    def close(self) -> None:
        """End all ranks; harmless a second time."""
        seats, self._seats = self._seats, []
        for seat in seats:
            seat.end()

    def _look(self) -> None:
        """Refuse what keeps NCCL from running, and GPUs that another run measures on."""
        try:
            if self._check and (sentence := preflight.obstacle(self.facts)):
                raise Unavailable(sentence)
            self._world.lock(self.facts)
        except Unavailable:
            self.close()
            raise
        found = self.ask(Links(interconnect.by_host(self.facts)), START_SECONDS)
        links = {link.pair: link for of_rank in found for link in of_rank}.values()
        self.interconnect = interconnect.kind(self.facts, list(links))
        self.topology = interconnect.topology(self.facts, list(links))

    def _round(self, requests: Mapping[int, Any], seconds: float) -> list[Any]:
        for rank, request in requests.items():
            with contextlib.suppress(Lost):  # heard of below
                self._seats[rank].say(request)
        return self._hear(list(requests), seconds)

    def _hear(self, ranks: Any, seconds: float) -> list[Any]:
        """An answer of each of these ranks within `seconds`, or the end of all ranks."""
        answers: dict[int, Any] = {}
        failures: dict[int, Exception] = {}  # in the order in which they came
        waiting = {rank: self._seats[rank] for rank in ranks}
        deadline = time.monotonic() + seconds
        while waiting and (left := deadline - time.monotonic()) > 0:
            ready = wait([seat.connection for seat in waiting.values()], left)
            for rank, seat in list(waiting.items()):
                if seat.connection in ready:
                    del waiting[rank]
                    _hear_one(rank, seat, answers, failures)
            if failures:
                deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        if not waiting and not failures:
            return [answers[rank] for rank in sorted(answers)]
        raise self._ended(failures, sorted(waiting), len(list(ranks)), seconds)

    def _ended(
        self, failures: dict[int, Exception], silent: list[int], asked: int, seconds: float
    ) -> Exception:
        """End all ranks, unless all of them said that the case is not for them; what to raise."""
        first = next(iter(failures.values()), None)
        alike = len(failures) == asked and len({str(error) for error in failures.values()}) == 1
        if isinstance(first, HARMLESS) and alike:
            return first
        seats, facts, self._seats = self._seats, self.facts, []
        logs = [seat.end(stacks=bool(silent) and not failures) for seat in seats]
        dead = [rank for rank, error in failures.items() if isinstance(error, Lost)]
        rank = next(iter([*dead, *failures, *silent]))
        host = f" on {facts[rank].host}" if facts else ""
        who = f"rank {rank} of {self.size}{host}"
        if dead:
            return Crashed(_with_log(f"{who} {failures[rank]}", logs[rank]))
        if failures:
            return retold(failures[rank], _with_log(f"{who}: {failures[rank]}", logs[rank]))
        named = ", ".join(map(str, silent))
        hint = "; try NCCL_P2P_DISABLE=1 to see whether it is the link" if self.device == "cuda" else ""
        sentence = f"no answer of rank {named} of {self.size}{host} within {seconds:g} s, all are ended{hint}"
        stacks = [f"[rank {silent_rank}]\n{logs[silent_rank]}" for silent_rank in silent]
        return Hung(_with_log(sentence, "\n".join(stacks)))


def _hear_one(rank: int, seat: Seat, answers: dict[int, Any], failures: dict[int, Exception]) -> None:
    try:
        failed, answer = seat.hear()
    except Lost as error:
        failures[rank] = error
        return
    (failures if failed else answers)[rank] = answer


def _with_log(sentence: str, log: str) -> str:
    """The sentence with the last words of the log in its line, and all kept lines of it below."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if not lines:
        return sentence
    words = " | ".join(lines[-3:])[-_WORDS:]
    return f"{sentence}; its last words: {words}\n" + "\n".join(lines)
