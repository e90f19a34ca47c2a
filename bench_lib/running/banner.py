"""The lines with which a session that measures begins."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from bench_lib import next_step
from bench_lib.model import Case, why_nothing
from bench_lib.running import selection
from bench_lib.running.target import CUDA

if TYPE_CHECKING:
    from bench_lib.running.session import Run


def lines(run: "Run", cases: Sequence[pytest.Item]) -> Iterator[str]:
    """What is measured on what, and what is skipped because there is no GPU."""
    if run.made is not None:
        yield f"cuda-gains: the folder {run.made} was not there; it was made for --benchmark-json"
    target, policy = run.target, run.options.policy
    what = f"stack {run.stack.name}, campaign {run.options.campaign}, {len(cases)} cases"
    how = f"policy {policy.name} ({policy.samples} samples)"
    if target.device == CUDA:
        yield f"cuda-gains: device cuda ({target.detected.name}, {target.detected.uuid}), {what}, {how}"
        if others := target.telemetry.other_processes():
            yield f"cuda-gains: {others} other processes compute on this GPU and may disturb the times"
        yield from _margins(cases)
        return
    yield f"cuda-gains: device cpu, {what}, {how}"
    families = selection.needing_gpu(cases)
    yield f"cuda-gains: no GPU: {target.detected.reason}"
    if families:
        yield f"cuda-gains: skipped, because they measure the GPU itself: {families}"
    yield from _margins(cases)


def _margins(cases: Sequence[pytest.Item]) -> Iterator[str]:
    if families := selection.without_margin(cases):
        named = ", ".join(families)
        yield f"cuda-gains: no MARGIN in the file of {named}: {selection.MARGIN} applies, which is 5 %"


def nothing_measured(ends: Mapping[tuple[str, str], int]) -> str:
    """The sentence on a run none of whose cases was measured, with the commonest reason; else ""."""
    if not (reason := why_nothing(ends)):
        return ""
    return f"nothing was measured: {sum(ends.values())} cases, 0 measured, most often: {reason}"


def next_line(run: "Run", cases: Mapping[str, Case]) -> str:
    """What to type after this run; "" where it measured nothing, and in a campaign, which says it itself."""
    measured = [(cases[nodeid].family, cases[nodeid].params) for nodeid in sorted(run.ok())]
    if not measured or run.task.round:
        return ""
    options = run.options
    return next_step.line([run.stack.name], options.campaign, str(options.address), measured)
