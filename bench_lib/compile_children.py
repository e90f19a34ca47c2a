"""The first step of a fresh process, with caches of its own; and the memory that one arm needs.

A cold first step finds its caches empty, a warm one finds what a cold one left. The child holds one
arm and nothing else, so its peak is that arm's.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from bench_lib import compile_preflight
from bench_lib.compiled_model import EAGER, NULL, check_compiled, count
from bench_lib.errors import CaseTimeout, CudaGainsError
from bench_lib.executions import told
from bench_lib.precision import in_precision
from bench_lib.training import Arm, Setup

CHILD_SECONDS = 900.0
_STEPS_TO_SETTLE = 3  # CUDA graphs are recorded in the second and third step
_FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "driver"}


@dataclass(frozen=True)
class First:
    """What one child saw."""

    seconds: float  # of the first step, compilation included, until the device was done
    cache_hits: int
    cache_misses: int
    quantities: Mapping[str, float] = field(default_factory=dict)  # peak_nbytes, peak_reserved_nbytes
    facts: Mapping[str, str] = field(default_factory=dict)


def cache_environment(caches: Path) -> dict[str, str]:
    """The variables that put every cache of compiled code under `caches`."""
    return {name: str(caches / folder) for name, folder in _FOLDERS.items()}


def default_caches(torch_version: str) -> Path:
    """Where compiled code is kept from run to run: apart for each torch, in the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "cuda-gains" / "compile" / torch_version


def first_step(setup: Setup, execution: str, device: str, caches: Path, cold: bool) -> First:
    """Run the child. `cold` promises that `caches` is empty, and the child's hits are held to it.

    Raises Unavailable without what compiling needs, CaseTimeout for a child that does not end,
    MemoryError for one that ran out of memory, else CudaGainsError with what it said.
    """
    if execution not in (EAGER, NULL):
        compile_preflight.check(device)
    request = json.dumps({"setup": setup.text(), "execution": execution, "device": device})
    command = [sys.executable, "-m", "bench_lib.compile_children", request]
    environment = {**os.environ, **cache_environment(caches)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise CaseTimeout(
            f"the child that takes the first step of {execution} did not end within {CHILD_SECONDS:.0f} s"
        ) from None
    first = _answer(done, execution)
    if cold and first.cache_hits:
        raise CudaGainsError(
            f"the caches of a cold first step gave {first.cache_hits} hits, expected none; "
            "is a remote cache of Inductor set up in the environment?"
        )
    return first


def _answer(done: "subprocess.CompletedProcess[str]", execution: str) -> First:
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise CudaGainsError(
            f"the child that takes the first step of {execution} ended with {done.returncode}: {last}"
        ) from None
    if "error" in answer:
        raise MemoryError(answer["error"]) if answer["memory"] else CudaGainsError(answer["error"])
    return First(**answer)


def take(setup: Setup, execution: str, device: str) -> First:
    """The child's work: the first step timed, then a few more for the peak of memory."""
    import torch

    with in_precision(torch, setup.precision, device) as effect:
        arm = Arm(setup, execution, device)
        synchronize = torch.cuda.synchronize if device == "cuda" else _nothing
        synchronize()
        begin = perf_counter()
        arm.step()
        synchronize()
        seconds = perf_counter() - begin
        done = count(torch)
        check_compiled(done, execution)
        peak = _peak(torch, arm) if device == "cuda" else {}
    return First(seconds, done.cache_hits, done.cache_misses, peak, {**effect.facts(), **done.facts()})


def _peak(torch: Any, arm: Arm) -> dict[str, float]:
    """Most bytes in steady steps: the compiler's own trials are over by then."""
    for _ in range(_STEPS_TO_SETTLE):
        arm.step()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(_STEPS_TO_SETTLE):
        arm.step()
    torch.cuda.synchronize()
    return {
        "peak_nbytes": float(torch.cuda.max_memory_allocated()),
        "peak_reserved_nbytes": float(torch.cuda.max_memory_reserved()),
    }


def _nothing() -> None:
    return None


def main() -> None:
    """Print what was seen, or the error in one sentence, as one line of JSON."""
    request = json.loads(sys.argv[1])
    try:
        answer = asdict(take(Setup.of(request["setup"]), request["execution"], request["device"]))
    except Exception as error:  # the parent shows it as the end of its case
        said = told(request["execution"], error)
        answer = {"error": str(said), "memory": isinstance(said, MemoryError)}
    print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main()
