"""How many ranks a run has, and where they are: processes of this machine, or a world that was joined."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from bench_lib.device.gpu_lock import Lock, lock
from bench_lib.errors import Refused, Unavailable, UsageError
from bench_lib.ranks.joining import Joined, Leader, follow
from bench_lib.ranks.member import Facts, Place
from bench_lib.ranks.seat import LocalSeat, Seat

ALL = "all"
_MOST = 4096
_ON_CPU = 2  # ranks where there is no GPU: the fewest that make a collective
_COUNT_SECONDS = 30.0
_COUNT = """
from bench_lib.device.driver import Driver
print(Driver.load().count())
"""


class World:
    """The ranks of a run; one a session. `asked` is the text of --ranks: a number, or all."""

    def __init__(
        self,
        asked: str = ALL,
        environment: Mapping[str, str] | None = None,
        held: Callable[[], str] = str,
    ) -> None:
        """`environment` is that in which torchrun's variables are looked for (default: none); `held`
        gives the UUID of the GPU that this session has locked already.

        Raises UsageError when `asked` is neither a number above 0 nor `all`, or not torchrun's world.
        """
        if asked != ALL and not (asked.isdecimal() and 0 < int(asked) <= _MOST):
            raise UsageError(f"--ranks {asked} is neither a number from 1 to {_MOST} nor `all`")
        self.joined = Joined.of(environment or {})
        if self.joined is not None and asked not in (ALL, str(self.joined.size)):
            raise UsageError(
                f"--ranks {asked} under torchrun, whose world has {self.joined.size}; leave --ranks out there"
            )
        self._asked = asked
        self._leader: Leader | None = None
        self._held, self._locks = held, dict[str, Lock]()

    @property
    def host(self) -> str:
        """Where all ranks reach rank 0."""
        return "127.0.0.1" if self.joined is None else self.joined.host

    def size(self, device: str) -> int:
        """How many ranks a group has: what was asked for; `all`: one a GPU, two on the CPU."""
        if self.joined is not None:
            return self.joined.size
        if self._asked != ALL:
            return int(self._asked)
        return self._gpus if device == "cuda" else _ON_CPU

    @property
    def follows(self) -> bool:
        """Whether this process only lends a seat to rank 0, which measures and records."""
        return self.joined is not None and self.joined.rank > 0

    def follow(self) -> None:
        """Lend seats until rank 0 is done."""
        assert self.joined is not None
        follow(self.joined)

    def gather(self) -> None:
        """Under torchrun, as rank 0: wait for the others. Raises Refused when they do not come."""
        if self.joined is not None and self._leader is None:
            self._leader = Leader(self.joined)

    def seats(self, size: int) -> list[Seat]:
        """Where the ranks of a group are started, in their order."""
        if self._leader is None:
            return [LocalSeat() for _ in range(size)]
        return [LocalSeat(), *(self._leader.seat(rank) for rank in range(1, size))]

    def places(self, size: int, device: str, backend: str) -> list[Place]:
        """What stands where."""
        local = {rank: (rank, size) for rank in range(size)} if self._leader is None else self._leader.local
        return [Place(rank, size, *local[rank], device, backend) for rank in range(size)]

    def lock(self, facts: Sequence[Facts]) -> None:
        """Keep other runs off the GPUs of this host; Unavailable, naming the holder, when one has one."""
        here = {fact.uuid for fact in facts if fact.uuid and fact.boot_id == facts[0].boot_id}
        for uuid in sorted(here - self._locks.keys() - {self._held()}):
            try:
                self._locks[uuid] = lock(uuid)
            except Refused as error:
                raise Unavailable(str(error)) from None

    def close(self) -> None:
        """Let go of the GPUs, and of torchrun's other processes."""
        for one in self._locks.values():
            one.release()
        if self._leader is not None:
            self._leader.close()

    @cached_property
    def _gpus(self) -> int:
        """GPUs that a process started here sees, at least one; asked in a child: CUDA stays untouched."""
        command = [sys.executable, "-c", _COUNT]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_COUNT_SECONDS, check=False
            )
            return max(1, int(done.stdout))
        except (subprocess.TimeoutExpired, ValueError):
            return 1
