"""What is compared and on what, in the words of somebody who never wrote a benchmark."""

from collections.abc import Mapping
from itertools import takewhile

import pandas as pd

from bench_lib.comparing.bridge import Bridge
from bench_lib.comparing.changes import Comparison
from bench_lib.comparing.differences import ABSENT, SEVERAL
from bench_lib.comparing.verdicts import Pairing
from bench_lib.model import NULL_SUFFIX

_VALUES: Mapping[str, Mapping[str, str]] = {  # by parameter of a contrast; "" is every other value
    "execution": {
        "compiled": "torch.compile",
        "compiled-reduce-overhead": "torch.compile (reduce-overhead)",
        "compiled-max-autotune": "torch.compile (max-autotune)",
        "": "{}",
    },
    "precision": {
        "fp32": "IEEE fp32",
        "tf32": "TF32",
        "fp16-autocast": "fp16 autocast",
        "bf16-autocast": "bf16 autocast",
        "": "{}",
    },
    "benchmark": {"": "cudnn.benchmark {}"},
    "runtime": {"driver": "the driver alone", "": "CUDA runtime {}"},
    "way": {"faults": "page faults", "pinned": "pinned copies", "pageable": "pageable copies", "": "{}"},
    "nccl": {"": "NCCL {}"},
    "layout": {"nchw": "NCHW", "": "{}"},
    "loads": {"cp_async": "loads by cp.async", "tma": "loads by TMA", "": "{} loads"},
    "sharing": {"time_sliced": "time slicing", "mps": "MPS", "": "{}"},
    "loading": {"": "{} loading"},
    "exporter": {"": "the {} exporter"},
}
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


def side(comparison: Comparison, label: str) -> str:
    """One side in words: of a contrast what its value is, of two stacks its name."""
    if comparison.pairing != Pairing.RUNS:
        return label
    parameter, _, value = label.partition("=")
    value, again, _ = value.partition(NULL_SUFFIX)
    words = _VALUES.get(parameter)
    told = f"{parameter} {value}" if words is None else words.get(value, words[""].replace("{}", value))
    return f"{told} again" if again else told


def against(comparison: Comparison) -> str:
    """The candidate against the baseline: `torch.compile against eager`, `CUDA runtime 12.4 against 11.8`.

    Two stacks are told by the one component in which they differ, by their names where that is none
    or several.
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
    """The one component that differs, in words, and its version on both sides; None for none or several."""
    parts = [one for one in comparison.differences if one.axis in ("stack", "driver")]
    if len(parts) != 1 or parts[0].component not in _COMPONENTS:
        return None
    versions = (parts[0].baseline, parts[0].candidate)
    if ABSENT in versions or any(SEVERAL in one or "(" in one for one in versions):
        return None
    return (_COMPONENTS[parts[0].component], *versions)


def device(runs: pd.DataFrame, cases: pd.DataFrame) -> str:
    """What a process ran on: `one H200`, `8 H200s`, `a CPU`; "" where that is not known."""
    on_gpu = runs[runs["device"] == "cuda"]
    if on_gpu.empty:
        return "" if runs.empty else "a CPU"
    names = sorted({name.removeprefix("NVIDIA ") for name in on_gpu["gpu_name"] if name})
    most = int(cases["world_size"].max()) if len(cases) else 1
    if len(names) != 1:
        return " and ".join(names)
    return f"one {names[0]}" if most <= 1 else f"{most} {names[0]}s"
