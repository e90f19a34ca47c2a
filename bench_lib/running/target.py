"""What a run measures on: the GPU that a child process saw, or the CPU because there is none.

CUDA stays untouched in this process until something asks for the GPU.
"""

import contextlib
import gc
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from bench_lib.device.telemetry import Telemetry
from bench_lib.errors import CudaError, Refused, Unavailable

if TYPE_CHECKING:
    from bench_lib.device.gpu import Detected, Gpu
    from bench_lib.device.gpu_lock import Lock

AUTO, CUDA, CPU = "auto", "cuda", "cpu"
NO_GPU = "no GPU"  # how the reason of a case begins that is skipped for the want of one


class Target:
    """The device of this process: what was asked for, what is there, and the GPU once it is open."""

    def __init__(self, asked: str = AUTO, require_gpu: bool = False) -> None:
        self._asked = asked
        self._require_gpu = require_gpu
        self._gpu: Gpu | None = None
        self._lock: Lock | None = None

    @cached_property
    def detected(self) -> "Detected":
        """What a child process saw; nobody looks when the CPU was asked for."""
        from bench_lib.device.gpu import Detected, detect

        return Detected(False, "--device cpu was given") if self._asked == CPU else detect()

    @property
    def device(self) -> str:
        """`cuda` or `cpu`."""
        return CUDA if self.detected.available else CPU

    def check(self) -> None:
        """Raise Refused when a GPU was asked for and there is none: nothing falls back in silence."""
        if self.detected.available or not (self._require_gpu or self._asked == CUDA):
            return
        option = "--require-gpu" if self._require_gpu else "--device cuda"
        raise Refused(f"{option} was given and there is no GPU to measure: {self.detected.reason}")

    def lock(self) -> None:
        """Keep other runs off this GPU until `close`; Refused when one is there. On the CPU nothing."""
        if self.detected.available:
            from bench_lib.device.gpu_lock import lock

            self._lock = lock(self.detected.uuid)

    def gpu(self) -> "Gpu":
        """The GPU, opened when it is first asked for; Unavailable on the CPU."""
        if self._gpu is None:
            if not self.detected.available:
                raise Unavailable(f"{NO_GPU}: {self.detected.reason}")
            from bench_lib.device.gpu import Gpu

            self._gpu = Gpu.open()
        return self._gpu

    @property
    def opened(self) -> "Gpu | None":
        """The GPU if something has asked for it, else None."""
        return self._gpu

    @cached_property
    def telemetry(self) -> Telemetry:
        """NVML's view of the GPU; on the CPU it knows nothing. Needs no CUDA."""
        return Telemetry.open(self.detected.uuid) if self.detected.available else Telemetry()

    def dead(self) -> str:
        """Why the CUDA context cannot be used any more, "" while it can.

        Also tells of an error that a library of its own (torch) ran into.
        """
        try:
            if self._gpu is not None:
                self._gpu.synchronize()
        except CudaError as error:
            return str(error) if error.sticky else ""
        return ""

    def close(self) -> None:
        """Give the GPU back, and let other runs at it."""
        if self._gpu is not None:
            with contextlib.suppress(CudaError):  # a dead context takes no good-bye
                self._gpu.close()
            self._gpu = None
        if self._lock is not None:
            self._lock.release()


def clean(last_of_file: bool) -> None:
    """Free what a case has left behind, so that it cannot be the next one's out of memory.

    What outlives a case is frozen, so that each collection looks at new objects only (with torch
    loaded a whole one takes 0.1 s); at the end of a file all is looked at again. `gc.unfreeze` ends it.
    """
    if last_of_file:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
