"""What one rank is: its place in the world, what it saw of its machine, and what its handler is made with."""

import importlib
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_lib.identity.machine import text

Handler = Callable[[Any], Any]  # a request in, an answer out; both plain values that can be pickled

SHM = Path("/dev/shm")  # noqa: S108  what NCCL itself uses
NCCL, GLOO, NONE = "nccl", "gloo", ""  # torch.distributed's backends, or no torch at all


@dataclass(frozen=True)
class Place:
    """Where a rank stands."""

    rank: int
    size: int
    local_rank: int  # among the ranks of its host: the ordinal of its GPU
    local_size: int
    device: str  # cuda or cpu
    backend: str = NONE


@dataclass(frozen=True)
class Spec:
    """All that a rank's process is started with. `make(member, *arguments)` gives its handler."""

    place: Place
    make: Callable[..., Handler]
    arguments: tuple[Any, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # set in its environment


@dataclass(frozen=True)
class Facts:
    """What a rank saw of its machine before anything was brought up; `error`: why it saw no GPU."""

    rank: int
    host: str
    boot_id: str
    gpus: int = 0  # that its process sees
    uuid: str = ""
    name: str = ""
    compute_mode: str = ""
    others: int = 0  # other processes that compute on its GPU
    shm_nbytes: int = 0  # free in /dev/shm
    error: str = ""


@dataclass(frozen=True)
class Joining:
    """Where the ranks of a torch.distributed group meet, and how long they may take."""

    host: str
    port: int
    seconds: float


class Member:
    """A rank as its handler sees it. `torch` is None where the backend is none."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rank, self.size, self.local_rank = place.rank, place.size, place.local_rank
        self.device, self.backend = place.device, place.backend
        self.torch: Any = importlib.import_module("torch") if place.backend else None
        self.init_seconds = 0.0  # of init_process_group, communicator included
        self._store: Any = None

    @property
    def torch_device(self) -> str:
        """`cuda:1` or `cpu`, for tensors of this rank."""
        return f"cuda:{self.local_rank}" if self.device == "cuda" else "cpu"

    def lead(self) -> int:
        """Let the other ranks meet here; the port, which the kernel chose, so that no two runs share one."""
        store = self.torch.distributed.TCPStore
        self._store = store("127.0.0.1", 0, self.size, is_master=True, wait_for_workers=False)
        return int(self._store.port)

    def join(self, where: Joining) -> float:
        """Become a rank of the torch.distributed group; seconds that took."""
        from datetime import timedelta
        from time import perf_counter

        dist, limit = self.torch.distributed, timedelta(seconds=where.seconds)
        store = self._store or dist.TCPStore(where.host, where.port, self.size, False, timeout=limit)
        known: dict[str, Any] = {"store": store, "rank": self.rank, "world_size": self.size, "timeout": limit}
        if self.device == "cuda":
            self.torch.cuda.set_device(self.local_rank)
            known["device_id"] = self.torch.device(self.torch_device)  # brings the communicator up now
        begin = perf_counter()
        dist.init_process_group(self.backend, **known)
        self.init_seconds = perf_counter() - begin
        return self.init_seconds


def look(place: Place) -> Facts:
    """What this process sees of its machine; makes no CUDA context. Never raises."""
    shm = os.statvfs(SHM) if SHM.exists() else None
    known: dict[str, Any] = {
        "rank": place.rank,
        "host": socket.gethostname(),
        "boot_id": text(Path("/proc/sys/kernel/random/boot_id")),
        "shm_nbytes": shm.f_bavail * shm.f_frsize if shm else 0,
    }
    return Facts(**known, **(_gpu(place) if place.device == "cuda" else {}))


def _gpu(place: Place) -> dict[str, Any]:
    from bench_lib.device.driver import Driver
    from bench_lib.device.telemetry import Telemetry
    from bench_lib.errors import CudaGainsError

    found: dict[str, Any] = {}
    try:
        driver = Driver.load()
        found["gpus"] = driver.count()
        if place.local_rank < found["gpus"]:
            info = driver.describe(place.local_rank)
            telemetry = Telemetry.open(info.uuid)
            mode = telemetry.describe().get("gpu.compute_mode", "")
            others = telemetry.other_processes() or 0
            telemetry.close()
            found |= {"uuid": info.uuid, "name": info.name, "compute_mode": mode, "others": others}
    except CudaGainsError as error:
        found["error"] = str(error)
    return found
