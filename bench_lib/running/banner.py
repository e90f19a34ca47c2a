"""The lines with which a session that measures begins."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from bench_lib.running import selection
from bench_lib.running.target import CUDA
from bench_lib.units import count_text

if TYPE_CHECKING:
    from bench_lib.running.session import Run


def lines(run: "Run", cases: Sequence[pytest.Item]) -> Iterator[str]:
    """What is measured on what, and what is skipped because there is no GPU."""
    if run.made is not None:
        yield f"cuda-gains: the folder {run.made} was not there; it was made for --benchmark-json"
    from bench_lib.journaling import held  # with what it needs: looking alone needs none of it

    target, policy, asked = run.target, run.options.policy, set(map(selection.family, cases))
    if not run.task.round and (said := held.others(run.options.folder, False, policy.name, asked)):
        yield f"cuda-gains: {said}"
    if not run.task.round and (said := held.other_code(run.options.folder, run.files)):
        yield f"cuda-gains: {said}"
    what = f"stack {run.stack.name}, campaign {run.options.campaign}, {count_text(len(cases), 'case')}"
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
