"""How many ranks a run has, and where they are: processes of this machine, or a world that was joined."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property

from bench_lib.errors import UsageError
from bench_lib.ranks.member import Place
from bench_lib.ranks.seat import LocalSeat, Seat

ALL = "all"
_ON_CPU = 2  # ranks where there is no GPU: the fewest that make a collective
_COUNT_SECONDS = 30.0
_COUNT = """
from bench_lib.driver import Driver
print(Driver.load().count())
"""


class World:
    """The ranks of a run; one a session. `asked` is the text of --ranks: a number, or all."""

    def __init__(self, asked: str = ALL, environment: Mapping[str, str] = os.environ) -> None:
        """Raises UsageError when `asked` is neither a number above 0 nor `all`."""
        if asked != ALL and not (asked.isdecimal() and 0 < int(asked) <= 4096):
            raise UsageError(f"--ranks {asked} is neither a number from 1 to 4096 nor `all`")
        self._asked = asked
        self._environment = environment

    host = "127.0.0.1"  # where all ranks reach rank 0

    def size(self, device: str) -> int:
        """How many ranks a group has: what was asked for; `all`: one a GPU, two on the CPU."""
        if self._asked != ALL:
            return int(self._asked)
        return self._gpus if device == "cuda" else _ON_CPU

    def seats(self, size: int, device: str) -> list[Seat]:
        """Where the ranks of a group are started, in their order."""
        return [LocalSeat() for _ in range(size)]

    def places(self, size: int, device: str, backend: str) -> list[Place]:
        """What stands where."""
        return [Place(rank, size, rank, size, device, backend) for rank in range(size)]

    def unset(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Of some variables those that the user has not set: what is set stays as it is."""
        return {name: value for name, value in wanted.items() if name not in self._environment}

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
