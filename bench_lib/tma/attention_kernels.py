"""Which kernels an attention ran, asked in a process of its own (see `kernel_names`)."""

from typing import Any

from bench_lib.convolution.kernel_names import Ran, bring_up, ran_by
from bench_lib.processes.worker import Handler
from bench_lib.tma.attention import Attention, Key


def profiling_worker(device: str) -> Handler:
    """What a profiling worker does: Key -> Ran; made in the worker."""
    import torch

    if device == "cuda":
        bring_up(torch)
    return lambda key: profile(torch, key)


def profile(torch: Any, key: Key) -> Ran:
    """Kernels and operators of one attention, torch's as they call each other."""
    made = Attention(torch, key)
    with made.backend():
        return ran_by(torch, made.run, key.device, "attention")
