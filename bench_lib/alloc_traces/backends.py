"""The ways torch's CUDA allocator can work: how each is asked for, and what a trace's peak is under it.

Torch reads the setting once, when its library is loaded: each needs a process of its own. Roundings are
those of c10/cuda/CUDACachingAllocator.cpp; of the driver's pool none is documented.
"""

from collections.abc import Mapping
from typing import NamedTuple

from bench_lib.alloc_traces.trace import Size, Trace, account
from bench_lib.errors import WrongResult

# The second name is the newer one; a torch that knows both reads either, an older one the first alone.
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
NATIVE, EXPANDABLE, ASYNC = "native", "expandable_segments", "cudaMallocAsync"
_STEP = 512
_MIB = 1 << 20


def rounded(nbytes: int, step: int = _STEP) -> int:
    """The next multiple of `step`."""
    return -(-nbytes // step) * step


def _unsplit(nbytes: int) -> int:
    """At most: what is left of a block over 1 MiB is cut off only where that is more than 1 MiB."""
    return rounded(nbytes) + (_MIB if rounded(nbytes) > _MIB else 0)


def _pooled(nbytes: int) -> int:
    return rounded(nbytes, 2 * _MIB if nbytes > _MIB else _STEP)


class Backend(NamedTuple):
    """One setting, and between which sizes it counts a block of so many bytes."""

    setting: str
    least: Size
    most: Size

    @property
    def variables(self) -> dict[str, str]:
        """The environment of its process."""
        return dict.fromkeys(VARIABLES, self.setting)


BACKENDS: Mapping[str, Backend] = {
    NATIVE: Backend("", rounded, _unsplit),
    EXPANDABLE: Backend("expandable_segments:True", rounded, rounded),
    ASYNC: Backend("backend:cudaMallocAsync", lambda nbytes: nbytes, _pooled),
}


def check_peak(backend: str, trace: Trace, peak_nbytes: int, requested_nbytes: int | None) -> None:
    """Hold a peak that the allocator tells to the trace's own: the positive control of every replay.

    `requested_nbytes`: the peak before any rounding, where the allocator tells it. Raises WrongResult.
    """
    exact = trace.account.peak_nbytes
    if requested_nbytes is not None and requested_nbytes != exact:
        raise WrongResult(
            f"{trace.name} asks for {exact} bytes at its peak, the allocator {backend} counted "
            f"{requested_nbytes}: it did not see this trace alone"
        )
    ends = [account(trace.events, size).peak_nbytes for size in BACKENDS[backend][1:]]
    if not ends[0] <= peak_nbytes <= ends[1]:
        raise WrongResult(
            f"the peak of {trace.name} was {peak_nbytes} bytes under {backend}; counted by hand and rounded "
            f"as that allocator does it is from {ends[0]} to {ends[1]}"
        )
