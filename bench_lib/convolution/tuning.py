"""How cuDNN's algorithm is chosen: sets torch's flags, reads them back, restores what was found.

Torch keeps the plan it chose for a convolution under a key without these flags (Conv_v8.cpp,
`CacheKey`): what the first call of a process chose serves every later one, whatever is set by then.
So the settings are only ever compared between processes, one setting each.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from bench_lib.errors import Unavailable, UsageError


class Tuning(StrEnum):
    """`torch.backends.cudnn.benchmark` and its neighbours."""

    OFF = "off"  # the heuristic's first choice
    ON = "on"  # the fastest of ten tried
    EXHAUSTIVE = "exhaustive"  # the fastest of all
    DETERMINISTIC = "deterministic"  # the heuristic's first choice among the deterministic ones

    @property
    def tries(self) -> bool:
        """Whether algorithms are timed to choose one."""
        return self in (Tuning.ON, Tuning.EXHAUSTIVE)

    @property
    def flags(self) -> dict[str, bool | int]:
        """The flags of torch.backends.cudnn; `benchmark_limit` 0 means all."""
        return {
            "enabled": True,
            "benchmark": self.tries,
            "benchmark_limit": 0 if self is Tuning.EXHAUSTIVE else 10,
            "deterministic": self is Tuning.DETERMINISTIC,
        }


@contextmanager
def in_tuning(torch: Any, tuning: Tuning) -> Iterator[dict[str, str]]:
    """Set the flags, yield the facts as read back, then restore what was found.

    Raises Unavailable where this torch lacks a flag, UsageError where a flag does not stick.
    """
    cudnn = torch.backends.cudnn
    found = {name: getattr(cudnn, name, None) for name in tuning.flags}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise Unavailable(f"torch {torch.__version__} has no torch.backends.cudnn.{missing[0]}")
    try:
        _write(cudnn, tuning.flags)
        effect = {name: getattr(cudnn, name) for name in tuning.flags}
        if effect != tuning.flags:
            raise UsageError(
                f"asked for benchmark={tuning}, torch.backends.cudnn has {effect}; "
                "this torch does not take the flags, so the case cannot be measured here"
            )
        yield {f"cudnn.{name}": str(value).lower() for name, value in effect.items()}
    finally:
        _write(cudnn, found)


@contextmanager
def without_cudnn(torch: Any) -> Iterator[None]:
    """Torch's own kernels inside, for references that do not depend on cuDNN."""
    cudnn = torch.backends.cudnn
    found = cudnn.enabled
    cudnn.enabled = False
    try:
        yield
    finally:
        cudnn.enabled = found


def _write(cudnn: Any, flags: dict[str, Any]) -> None:
    for name, value in flags.items():
        setattr(cudnn, name, value)
