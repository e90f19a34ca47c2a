"""A case in words, for a sentence: what it is called exactly stands in the tables."""

import re
from collections.abc import Mapping, Sequence

from bench_lib.comparing.changes import CaseChange
from bench_lib.units import nbytes_text

_BARE = frozenset({"none", "on", "off", "yes", "no", ""})  # say nothing without the parameter's name
_OPS: Mapping[str, str] = {  # where the family and the op themselves are no words of a sentence
    "amp_conv/conv": "convolution",
    "amp_conv/small_cnn": "small CNN",
    "amp_conv/train_step": "training step",
    "cudnn_selection/changing_size": "convolution of changing size:",
    "cudnn_selection/choice_by_path": "choice of an algorithm by cuDNN alone",
    "cudnn_selection/conv": "convolution",
    "cudnn_selection/conv_by_path": "convolution by cuDNN alone",
    "cudnn_selection/first_call": "first call of a convolution",
    "cudnn_selection/tuning": "tuning of a convolution",
}
_VALUES: Mapping[str, Mapping[str, str]] = {  # by parameter; "" is every other value
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
    "benchmark by path": {"off": "the heuristic's choice", "": "the fastest algorithm tried"},
    "runtime": {"driver": "the driver alone", "": "CUDA runtime {}"},
    "way": {"faults": "page faults", "pinned": "pinned copies", "pageable": "pageable copies", "": "{}"},
    "nccl": {"": "NCCL {}"},
    "layout": {"nchw": "NCHW", "": "{}"},
    "loads": {"cp_async": "loads by cp.async", "tma": "loads by TMA", "": "{} loads"},
    "sharing": {"time_sliced": "time slicing", "mps": "MPS", "": "{}"},
    "loading": {"": "{} loading"},
    "exporter": {"": "the {} exporter"},
}
_SHAPE = re.compile(r"(\d+(?:x\d+)+)-(\d+)-(\d+)-(\d[\dx]*)(?:-(?:s(\d+)|(depthwise)))?")


def case_text(row: CaseChange, among: Sequence[CaseChange] = ()) -> str:
    """A case in words: `resnet50 step (batch 128, channels_last, infer, bf16 autocast)`.

    What all cases `among` which it stands share is left out.
    """
    own = row.op if row.op in row.family.split("_") else f"{row.family} {row.op}"
    what = _OPS.get(f"{row.family}/{row.op}", own.replace("_", " "))
    said = row.metric == "time" or row.metric in row.op.split("_")
    metric = "" if said else " " + row.metric.replace("_", " ")
    shared = _shared(among)
    told = [_parameter(name, value, row.op) for name, value in row.params.items() if name not in shared]
    return f"{what}{metric}" + (f" ({', '.join(told)})" if told else "")


def value_text(name: str, value: str, op: str = "") -> str | None:
    """The value of a parameter in words, `cudnn.benchmark on`; None for a parameter without words.

    An op by path asks cuDNN itself, whatever a switch of torch says.
    """
    words = _VALUES.get(f"{name} by path" if op.endswith("_by_path") else name) or _VALUES.get(name)
    return None if words is None else words.get(value, words[""].replace("{}", value))


def _shared(among: Sequence[CaseChange]) -> set[str]:
    """The parameters that say nothing: the metric, which is told apart, and what is equal in all cases."""
    # As text: a damaged file may hold a list for a value.
    own = [{(name, repr(value)) for name, value in row.params.items()} for row in among]
    equal = {name for name, _ in set.intersection(*own)} if len(own) > 1 else set()
    return {"metric", *equal}


def _parameter(name: str, value: object, op: str) -> str:
    """A text says what it is by itself; a number, a switch and a word like `none` need the name."""
    if name == "nbytes" and isinstance(value, int | float):
        return nbytes_text(value)
    if name == "shape" and (found := _SHAPE.fullmatch(str(value))):
        return _shape(*found.groups())
    if isinstance(value, str) and (words := value_text(name, value, op)):
        return words
    if isinstance(value, str) and value not in _BARE:
        return value
    return f"{name} {str(value).lower() if isinstance(value, bool) else value}"


def _shape(filters: str, given: str, made: str, size: str, stride: str | None, kind: str | None) -> str:
    """The shape of a convolution: `3x3, 64 to 128 channels, 56x56`."""
    over = size if "x" in size else f"{size}x{size}"
    more = f", stride {stride}" if stride else f", {kind}" if kind else ""
    return f"{filters}, {given} to {made} channels, {over}{more}"
