"""What to type after a run: where its results lie in, one line with the commands that read them out."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from bench_lib.model import Scalar

# The contrast that a family is made for: its parameter, the baseline and the candidate.
CONTRASTS = {
    "ladder": ("runtime", "11.8", "12.4"),
    "amp_conv": ("precision", "fp32", "bf16-autocast"),
    "cudnn_selection": ("benchmark", "off", "on"),
    "compile_resnet50": ("execution", "eager", "compiled"),
    "unified_memory": ("way", "pinned", "prefetch"),
    "allocator": ("backend", "native", "expandable_segments"),
    "stream_overlap": ("streams", "one", "two"),
    "module_loading": ("loading", "lazy", "eager"),
    "mps": ("sharing", "time_sliced", "mps"),
    "onnx_export": ("exporter", "torchscript", "dynamo"),
    "tma": ("loads", "cp_async", "tma"),
}


def line(
    stacks: Sequence[str],
    campaign: str,
    results: str,
    measured: Iterable[tuple[str, Mapping[str, Scalar]]],
) -> str:
    """The line that follows a run whose results lie in `campaign` of `results`.

    `measured`: family and parameters of the cases that have a result. Several stacks are compared; of
    one stack there is a contrast, where both of its values were measured, and the time after the upgrade.
    """
    where = [] if results == "results" else ["--results", results]
    if len(stacks) > 1:
        return f"next: {_compare([*stacks, '--campaign', campaign, *where])}"
    (stack,), later = stacks, f"{campaign}-after"
    compared = _compare([f"{campaign}/{stack}", f"{later}/{stack}", *where])
    upgraded = f"after the upgrade, this command with --campaign {shlex.quote(later)}, then {compared}"
    if not (contrast := _contrast(measured)):
        return f"next: {upgraded}"
    return f"next: {_compare(['--contrast', contrast, stack, '--campaign', campaign, *where])}; or {upgraded}"


def _compare(words: Sequence[str]) -> str:
    return shlex.join(["cuda-gains", "compare", *words])


def _contrast(measured: Iterable[tuple[str, Mapping[str, Scalar]]]) -> str:
    """The first of CONTRASTS both of whose values were measured; "" without one."""
    values: dict[str, set[str]] = {}
    for family, params in measured:
        if family in CONTRASTS and (name := CONTRASTS[family][0]) in params:
            values.setdefault(family, set()).add(str(params[name]))
    for family, (name, baseline, candidate) in CONTRASTS.items():
        if {baseline, candidate} <= values.get(family, set()):
            return f"{name}={baseline}:{candidate}"
    return ""
