"""What is compared and on what, in the words of somebody who never wrote a benchmark."""

from collections.abc import Mapping
from itertools import takewhile

import pandas as pd

from bench_lib.comparing.bridge import Bridge
from bench_lib.comparing.case_words import value_text
from bench_lib.comparing.changes import Comparison
from bench_lib.comparing.differences import ABSENT, SEVERAL
from bench_lib.comparing.verdicts import Pairing
from bench_lib.model import NULL_SUFFIX

_COMPONENTS: Mapping[str, str] = {
    "cudart": "CUDA runtime",
    "torch": "PyTorch",
    "cudnn": "cuDNN",
    "cublas": "cuBLAS",
    "cublaslt": "cuBLASLt",
    "nccl": "NCCL",
    "nvrtc": "NVRTC",
    "triton": "Triton",
    "cupy": "CuPy",
    "driver": "driver",
    "python": "Python",
}
_LEADING: Mapping[str, str] = {"torch": "PyTorch", "cudart": "CUDA libraries"}  # of several, the first
_TOLD = ("torch", "cudart", "cudnn", "nccl", "driver")  # by which a side is known, in this order


def side(comparison: Comparison, label: str) -> str:
    """One side in words: of a contrast what its value is, of two stacks its name."""
    if comparison.pairing != Pairing.RUNS:
        return label
    parameter, _, value = label.partition("=")
    value, again, _ = value.partition(NULL_SUFFIX)
    told = value_text(parameter, value) or f"{parameter} {value}"
    return f"{told} again" if again else told


def against(comparison: Comparison) -> str:
    """The candidate against the baseline: `torch.compile against eager`, `CUDA runtime 12.4 against 11.8`.

    Two stacks are told by the component that says most of what differs between them, PyTorch or the
    CUDA libraries where it is several, and by their names where nothing tells them apart.
    """
    if comparison.pairing == Pairing.RUNS:
        return _against(side(comparison, comparison.baseline), side(comparison, comparison.candidate))
    found = _exchanged(comparison)
    if found is None:
        return f"{comparison.candidate} against {comparison.baseline}"
    component, baseline, candidate = found
    return f"{component} {candidate} against {baseline}"


def _against(baseline: str, candidate: str) -> str:
    """What both begin with is said once: `cudnn.benchmark on against off`."""
    if candidate == f"{baseline} again":
        return f"{baseline} against itself"
    shared = [
        a
        for a, b in takewhile(
            lambda two: two[0] == two[1], zip(baseline.split(), candidate.split(), strict=False)
        )
    ]
    return f"{candidate} against {baseline.removeprefix(' '.join(shared)).strip()}"


def way(bridge: Bridge) -> str:
    """The stacks of a bridge: `CUDA runtime 11.8 → 12.4 → 13.0` where each step exchanges that alone."""
    steps = [_exchanged(step) for step in bridge.steps]
    known = [step for step in steps if step is not None]
    if len(known) < len(steps) or len({component for component, *_ in known}) > 1:
        return " → ".join(bridge.stacks)
    component, first, _ = known[0]
    return f"{component} {' → '.join([first, *(candidate for *_, candidate in known)])}"


def _exchanged(comparison: Comparison) -> tuple[str, str, str] | None:
    """What tells the sides apart, in words, and its version on both; None where nothing does by itself.

    A driver that differs beside the stack is never left unsaid.
    """
    parts = {one.component: one for one in comparison.differences if one.axis in ("stack", "driver")}
    words = _COMPONENTS if len(parts) == 1 else _LEADING
    name = next((name for name in words if name in parts), None)
    if name is None or any(one.axis == "driver" for one in parts.values() if one.component != name):
        return None
    versions = parts[name].baseline, parts[name].candidate
    if any(version == ABSENT or SEVERAL in version or "(" in version for version in versions):
        return None
    return (words[name], *versions)


def components(comparison: Comparison, label: str) -> str:
    """The versions by which a side is known, `torch 2.6.0+cu124, cudart 12.4`; "" where none differs."""
    own = {
        one.component: one.baseline if label == comparison.baseline else one.candidate
        for one in comparison.differences
        if one.axis in ("stack", "driver")
    }
    known = {name: own[name] for name in _TOLD if name in own and not own[name].startswith((ABSENT, "("))}
    return ", ".join(f"{name} {version}" for name, version in known.items())


def device(runs: pd.DataFrame, cases: pd.DataFrame) -> str:
    """What a process ran on: `one H200`, `8 H200s`, `a CPU`; "" where that is not known."""
    on_gpu = runs[runs["device"] == "cuda"]
    if on_gpu.empty:
        return "" if runs.empty else "a CPU"
    names = sorted({name.removeprefix("NVIDIA ") for name in on_gpu["gpu_name"] if name})
    most = cases["world_size"].max()  # NaN where no case says it
    if len(names) != 1:
        return " and ".join(names)
    return f"{int(most)} {names[0]}s" if most > 1 else f"one {names[0]}"
