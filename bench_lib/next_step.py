"""What to type after a run: where its results lie in, one line with the commands that read them out."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bench_lib.model import Scalar

_PROGRAM = "cuda-gains"

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
    more: str = "",
) -> str:
    """The line that follows a run whose results lie in `campaign` of `results`.

    `measured`: family and parameters of the cases that this command measured. Several stacks are compared; of
    one stack there is a contrast, where both of its values were measured, and the time after the upgrade.
    `more`: what to type for runs enough for a verdict, "" where they are there. What is no command follows
    one as a comment of the shell, so that the whole can be pasted.
    """
    where = [] if results == "results" else ["--results", results]
    if len(stacks) > 1:
        compared = _compare([*stacks, "--campaign", campaign, *where])
        return _then(more, compared)
    (stack,) = stacks

    def between(earlier: str, later: str) -> str:
        sides = [name if stack == "here" else f"{name}/{stack}" for name in (earlier, later)]
        return _compare([*sides, *where])

    if earlier := _earlier(campaign, results):
        return _then(more, between(earlier, campaign))
    later = campaign.replace("before", "after") if "before" in campaign else f"{campaign}-after"
    again = "the same" if more else "this command"
    upgraded = f"after the upgrade {again} with --campaign {later}, then {between(campaign, later)}"
    if more:
        return f"next: {more}  # for verdicts; {upgraded}"
    if contrast := _contrast(measured):
        contrasted = _compare(["--contrast", contrast, stack, "--campaign", campaign, *where])
        return f"next: {contrasted}  # or {upgraded}"
    return f"next: {upgraded}"


def _then(more: str, compared: str) -> str:
    """`more` may be prose, which no shell can chain: what is compared after it is its comment."""
    return f"next: {more}  # then {compared}" if more else f"next: {compared}"


def _earlier(campaign: str, results: str) -> str:
    """The campaign that `campaign` came after, by its name and where it is there; else ""."""
    named = (
        campaign.removesuffix("-after")
        if campaign.endswith("-after")
        else campaign.replace("after", "before")
    )
    return named if named != campaign and (Path(results) / named / "runs").is_dir() else ""


def typed(command: str) -> str:
    """A command `cuda-gains ...` as it can be typed here, also where its environment is not active.

    The program is the one that runs, as it was started; under pytest, the one beside this Python.
    """
    started = sys.argv[0]
    if Path(started).name != _PROGRAM or not Path(started).is_file():
        started = os.path.relpath(Path(sys.executable).with_name(_PROGRAM))
    found = shutil.which(_PROGRAM)
    if not Path(started).is_file() or (found and Path(found).samefile(started)):
        return command
    return shlex.quote(started) + command.removeprefix(_PROGRAM)


def read(
    stack: str, campaign: str, results: str, measured: Iterable[tuple[str, Mapping[str, Scalar]]]
) -> str:
    """What makes a page of one campaign of one stack, a single run too: by its contrast; "" without one."""
    if not (contrast := _contrast(measured)):
        return ""
    where = [] if results == "results" else ["--results", results]
    words = ["--contrast", contrast, stack, "--campaign", campaign, *where, "-o", f"{campaign}.html"]
    return typed(shlex.join([_PROGRAM, "report", *words]))


def _compare(words: Sequence[str]) -> str:
    return typed(shlex.join([_PROGRAM, "compare", *words]))


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
