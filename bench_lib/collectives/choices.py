"""What NCCL chose for each collective, from its log: asked in processes of their own, which time nothing."""

import os
import tempfile
from pathlib import Path

from bench_lib.collectives import native_rank
from bench_lib.collectives.asked import Collective, Connect, Loaded, NewId, SetUp
from bench_lib.collectives.sweep import CACHE, SET_UP_SECONDS, TAKE_SECONDS
from bench_lib.errors import CudaGainsError
from bench_lib.nccl import log
from bench_lib.nccl.log import Choice
from bench_lib.ranks.group import Ranks
from bench_lib.ranks.world import World


class Choices:
    """The choices of one library over one world; the ranks that are asked start when first needed."""

    def __init__(self, world: World, library: Loaded) -> None:
        descriptor, name = tempfile.mkstemp(prefix="cuda-gains-nccl-", suffix=".log")
        os.close(descriptor)
        self._log, self._library, self._read = Path(name), library, 0
        variables = {**CACHE, **log.VARIABLES, "NCCL_DEBUG_FILE": str(self._log)}
        self._ranks = Ranks(
            world, native_rank.make, (library,), size=world.size("cuda"), device="cuda", variables=variables
        )
        self._known: dict[tuple[str, int, str], Choice | None] = {}
        self._why = ""  # nothing can be asked any more

    def facts(self, asked: Collective) -> dict[str, str]:
        """Facts of a case: algorithm, protocol and channels, or why they are not known."""
        if asked.ranks == 1:
            return {"nccl.algorithm": "none: one rank"}
        key = (asked.op, asked.nbytes, asked.dtype)
        if key not in self._known and not self._why:
            try:
                self._known[key] = self._ask(asked)
            except (CudaGainsError, MemoryError) as error:  # the times stand without the names
                self._why = str(error).splitlines()[0]
        choice = self._known.get(key)
        unknown = self._why or "the log has no such line"
        return {"nccl.algorithm": f"unknown: {unknown}"} if choice is None else choice.facts()

    def close(self) -> None:
        """End the ranks."""
        self._ranks.close()
        self._log.unlink(missing_ok=True)

    def _ask(self, asked: Collective) -> Choice | None:
        if not self._ranks.started:
            name = self._library.name
            unique_id = self._ranks.ask_first(NewId(name), TAKE_SECONDS)
            self._ranks.ask(Connect(unique_id, name), SET_UP_SECONDS)
        self._new()
        self._ranks.ask(SetUp(asked, 1, self._library.name), SET_UP_SECONDS)
        return next(log.choices(self._new()), None)

    def _new(self) -> str:
        """What the log has got since it was last read."""
        with self._log.open("rb") as stream:
            stream.seek(self._read)
            data = stream.read()
        self._read += len(data)
        return data.decode(errors="replace")
