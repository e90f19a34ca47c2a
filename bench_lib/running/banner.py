"""The lines with which a session that measures begins."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench_lib import next_step, suite_files
from bench_lib.layout import LOCAL
from bench_lib.model import CANARY, FEWEST, Case
from bench_lib.running import selection
from bench_lib.running.target import CUDA
from bench_lib.stacking import families as suite_families

if TYPE_CHECKING:
    from bench_lib.running.session import Run

_FEW = 3  # families that are named one by one


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


def next_line(run: "Run", cases: Mapping[str, Case]) -> str:
    """What to type after this run; "" where it measured nothing, and in a campaign, which says it itself."""
    measured = [(cases[nodeid].family, cases[nodeid].params) for nodeid in sorted(run.ok())]
    if not measured or run.task.round:
        return ""
    from bench_lib.journaling import held

    asked, families = run.options, {family for family, _ in measured}
    campaign, more = asked.campaign, ""
    times = held.repeats(asked.folder, run.stack.name, asked.policy.name, families)
    if times < FEWEST and campaign == LOCAL:  # where every quick look goes: what is to be compared has a name
        campaign = _free(asked.folder.path.parent)
        more = next_step.typed(_rounds(run, sorted(families), campaign))
    elif times < FEWEST:
        more = f"the same command {'once' if times == FEWEST - 1 else 'twice'} more"
    return next_step.line([run.stack.name], campaign, str(asked.address), measured, more)


def _free(results: Path) -> str:
    """`before`, or with a number behind it what no campaign of these results is called yet."""
    names = ("before" + (f"-{n}" if n > 1 else "") for n in count(1))
    return next(name for name in names if not (results / name).exists())


def _named(run: "Run", families: Sequence[str]) -> Sequence[str]:
    """The families to name for rounds: those that were, else the measured ones; none for most of a folder.

    The canaries come along, also where only the suite has them: without them no comparison tells a disturbed
    machine from a slower stack. Not beside -k, which leaves them out.
    """
    asked, place = run.options, Path(run.options.benchmarks)
    named = asked.families or families
    folders = [
        folder
        for folder in (place, *suite_files.folders())
        if CANARY in suite_families.declared(folder).values()
    ]
    lacking = bool(folders) and CANARY not in named and not asked.keyword
    if not asked.families and len(families) > _FEW and not (lacking and place not in folders):
        return ()
    return [*named, CANARY] if lacking else named


def _rounds(run: "Run", families: Sequence[str], campaign: str) -> str:
    """The command that measures in rounds what this run measured."""
    asked = run.options
    words = ["cuda-gains", "run", "--stack", run.stack.name, "--rounds", str(FEWEST), "--campaign", campaign]
    for family in _named(run, families):
        words += ["--family", family]
    words += ["-k", asked.keyword] if asked.keyword else []
    words += ["--quick"] if asked.quick else ["--full"] if asked.full else []
    given = {"--device": asked.device, "--benchmarks": asked.benchmarks, "--results": str(asked.address)}
    usual = {"--device": "auto", "--benchmarks": "benchmarks", "--results": "results"}
    words += [word for option in given if given[option] != usual[option] for word in (option, given[option])]
    return shlex.join(words)
