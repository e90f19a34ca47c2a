"""The lines with which a session that measured ends: where its results lie, and what to type next."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench_lib import next_step, suite_files
from bench_lib.layout import LOCAL
from bench_lib.model import BAD, CANARY, FEWEST, Case, Scalar, Status
from bench_lib.running.target import NO_GPU
from bench_lib.stacking import families as suite_families
from bench_lib.units import count_text

if TYPE_CHECKING:
    from bench_lib.running.session import Run

_FEW = 3  # families that are named one by one


def lines(run: "Run", cases: Mapping[str, Case]) -> Iterator[str]:
    """Where the results lie and what the skips mean, how to read them, and what to type next.

    None where nothing was measured, and in a campaign, which says it itself.
    """
    measured = [(cases[nodeid].family, cases[nodeid].params) for nodeid in sorted(run.ok())]
    if not measured or run.task.round:
        return
    asked = run.options
    also = f" and {asked.json}" if asked.json is not None else ""
    bad = _bad(run)
    failed = f", {bad}" if bad else ""
    yield f"results: {run.where}{also}; {count_text(len(measured), 'case')} measured{failed}{_skipped(run)}"
    if page := next_step.read(run.stack.name, asked.campaign, str(asked.address), measured):
        yield f"read: {page}  # a page with charts; the times stand above"
    if bad:
        yield f"next: mend what failed ({bad}), the reasons stand above; then this command again"
    else:
        yield _next(run, measured)


def _skipped(run: "Run") -> str:
    """What is skipped is no failure; how much of it waits for a GPU. As many as pytest itself counts."""
    reasons = [reason for status, reason in run.statuses.values() if status is Status.SKIPPED]
    apart = sum(status is Status.NOT_APPLICABLE for status, _ in run.statuses.values())
    if not reasons and not apart:
        return ""
    without = sum(reason.startswith(NO_GPU) for reason in reasons)
    others = len(reasons) - without
    told = [
        f"{without} need{'s' * (without == 1)} a GPU" if without else "",
        f"{others} lack{'s' * (others == 1)} what is named above" if others else "",
        f"{apart} {'does' if apart == 1 else 'do'} not apply" if apart else "",
    ]
    return f", {len(reasons) + apart} skipped, which is no failure: {', '.join(one for one in told if one)}"


def _bad(run: "Run") -> str:
    """How many cases came to which bad end: `9 failed, 1 wrong-result`; "" where there is none."""
    ends = Counter(status for status, _ in run.statuses.values() if status in BAD)
    return ", ".join(f"{n} {status}" for status, n in ends.items())


def _next(run: "Run", measured: Sequence[tuple[str, Mapping[str, Scalar]]]) -> str:
    """What to type after this run."""
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
