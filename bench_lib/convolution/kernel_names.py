"""Which kernels an operator of torch ran, asked in a process of its own.

After profiling, launches stay slower for the life of a process; so the profiler is only ever used
in these workers, which time nothing.
"""

import importlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench_lib.convolution.conv_worker import Key
from bench_lib.convolution.precision import in_precision
from bench_lib.convolution.tuning import Tuning, in_tuning
from bench_lib.processes.worker import Handler

_COPIES = ("Memcpy", "Memset")
_TRIES = 2  # the first profile of a process can come out empty


@dataclass(frozen=True)
class Ran:
    """Kernels in the order they ran, and torch's operators that called them; names once each."""

    kernels: tuple[str, ...]
    operators: tuple[str, ...]

    def facts(self) -> dict[str, str]:
        """The facts a case stores; a profiler that saw no kernel says so."""
        kernels = "; ".join(self.kernels) or "unknown: the profiler saw none"
        return {"kernels": kernels, "operators": "; ".join(self.operators)}


def profiling_worker(tuning: Tuning, device: str) -> Handler:
    """What a profiling worker does: Key -> Ran; made in the worker."""
    torch: Any = importlib.import_module("torch")
    if device == "cuda":
        ExitStack().enter_context(in_tuning(torch, tuning))  # for the worker's life
        bring_up(torch)
    # Loads cuDNN: in all workers at once while they come up, not in one after the other when it is asked.
    torch.nn.functional.conv2d(*(torch.ones(1, 1, 3, 3, device=device) for _ in range(2)))
    return lambda key: profile(torch, key)


def profile(torch: Any, key: Key) -> Ran:
    """Run a convolution until its algorithm is chosen, then once more under the profiler."""
    with in_precision(torch, key.precision, key.device):
        return ran_by(torch, key.make(torch).run, key.device, "conv")


def bring_up(torch: Any) -> None:
    """Make the context, and let the profiler have started once."""
    _profiled(torch, lambda: torch.zeros(1, device="cuda"), "cuda", "")


def ran_by(torch: Any, run: Callable[[], object], device: str, named: str) -> Ran:
    """Call once freely, then once more under the profiler: kernels, and operators with this in their name."""
    run()
    for _ in range(_TRIES):
        ran = _profiled(torch, run, device, named)
        if ran.kernels or device == "cpu":
            break
    if device == "cuda":
        torch.cuda.empty_cache()
    return ran


def _profiled(torch: Any, run: Callable[[], object], device: str, named: str) -> Ran:
    from torch.profiler import ProfilerActivity

    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    synchronize()
    with torch.profiler.profile(activities=activities) as recorded:
        run()
        synchronize()
    events = recorded.events()
    cuda = torch.autograd.DeviceType.CUDA
    kernels = [e.name for e in events if e.device_type == cuda and not e.name.startswith(_COPIES)]
    operators = [e.name for e in events if e.name.startswith("aten::") and named in e.name]
    return Ran(_once(kernels), _once(operators))


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
