"""All findings of a claim in, its one verdict out, and what it would take to say more."""

import shlex
from collections.abc import Collection, Mapping, Sequence

from bench_lib.claims.judging import existential
from bench_lib.claims.words import SETTLED, Claim, Finding, Judged, Verdict
from bench_lib.model import CANARY
from bench_lib.stacking import stacks
from bench_lib.stacking.stacks import StackEntry

_ROUNDS = 10


def combined(claim: Claim, found: Sequence[Finding], missing: str, why: str = "") -> Judged:
    """The verdict over all findings; `missing` is what it would take where there is none, and `why` not.

    Some supported and others refuted: mixed. One supported finding shows what one case can show; what is
    about the whole scope needs all of its findings, and one that is refuted refutes it. A campaign with too
    few runs of the same adds nothing to what another one showed.
    """
    if not found:
        return Judged(claim, Verdict.NOT_MEASURED, why or "no case of it was measured", takes=missing)
    shown = {one.group for one in found if one.n_cases}
    counted = [one for one in found if one.n_cases or one.group not in shown]
    supported, refuted = ([one for one in counted if one.verdict is v] for v in SETTLED[:2])
    open_ = [one for one in counted if one.verdict not in SETTLED]
    if supported and refuted:
        verdict = Verdict.MIXED
    elif supported and (not open_ or existential(claim)):
        verdict = Verdict.SUPPORTED
    elif refuted and not (open_ and existential(claim)):
        verdict = Verdict.REFUTED
    else:
        all_absent = all(one.verdict is Verdict.NOT_MEASURED for one in counted)
        verdict = Verdict.NOT_MEASURED if all_absent else Verdict.INCONCLUSIVE
    more = verdict is Verdict.SUPPORTED and _more(claim, supported)
    steps = dict.fromkeys(f"{_name(one)}{one.next_step}" for one in open_ if one.next_step)
    more_of_it = "" if verdict in SETTLED else "; ".join(steps)
    reason = _reason(verdict, counted)
    if len(counted) < len(found):
        reason += f"; {len(found) - len(counted)} more with too few runs"
    return Judged(claim, verdict, reason, more, more_of_it, tuple(found))


def _more(claim: Claim, supported: Sequence[Finding]) -> bool:
    return (any if existential(claim) else all)(one.and_more for one in supported)


def _reason(verdict: Verdict, found: Sequence[Finding]) -> str:
    """The reason of the only finding; of several, what each of them says."""
    if len(found) == 1:
        return found[0].reason
    counts = {one: sum(f.verdict is one for f in found) for one in Verdict}
    told = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    own = next((f.reason for f in found if f.verdict is verdict), "")
    return f"{told} of {len(found)} findings" + (f": {own}" if own else "")


def _name(finding: Finding) -> str:
    parts = [part for part in (finding.campaign, finding.group) if part]
    return f"{', '.join(parts)}: " if parts else ""


def takes(
    claim: Claim, planned: Collection[str], entries: Mapping[str, StackEntry], benchmarks: str = ""
) -> str:
    """What it would take to measure a claim: hardware, families that are not there yet, stacks, rounds.

    `benchmarks` is the folder of its benchmark files, "" for the suite's.
    """
    absent = [family for family in claim.families if family in planned]
    parts = [claim.needs] if claim.needs else []
    if lacking := _lacking(claim, entries):
        parts.append(lacking)
    if absent:
        parts.append(f"the family {', '.join(absent)}, which is planned")
    elif claim.cases:
        command = "" if _without_stack(claim, entries) else f": {_command(claim, entries, benchmarks)}"
        parts.append(f"at least {_ROUNDS} rounds{command}")
    return "; ".join([*parts, *([claim.note] if claim.note else [])])


def _command(claim: Claim, entries: Mapping[str, StackEntry], benchmarks: str) -> str:
    families = " ".join(f"--family {shlex.quote(family)}" for family in (*claim.families, CANARY))
    if claim.baseline:
        names = [_stack(side, entries) for side in (claim.baseline, claim.candidate)]
        chosen = " ".join(f"--stack {name}" for name in dict.fromkeys(names))
    else:
        chosen = f"--stack {_stack(claim.inside, entries) if claim.inside else stacks.HERE.name} --no-null"
    folder = f" --benchmarks {shlex.quote(benchmarks)}" if benchmarks else ""
    return f"cuda-gains run {chosen} --rounds {_ROUNDS} {families}{folder} --campaign NAME"


def _stack(wanted: Mapping[str, str], entries: Mapping[str, StackEntry]) -> str:
    """The smallest stack of the stacks file that promises what a side holds."""
    if not (asked := _of_stacks(wanted)):
        return stacks.HERE.name
    able = [entry for entry in entries.values() if stacks.promises(entry, asked)]
    return min(able, key=lambda entry: len(stacks.declared(entry))).name


def _lacking(claim: Claim, entries: Mapping[str, StackEntry]) -> str:
    """What has to be there before the command can run: stacks, and what no stack brings, such as a driver."""
    parts = [
        f"a stack that holds {_told(asked)}: the stacks file has none, declare one there "
        "as docs/stacks-and-campaigns.md says"
        for asked in _without_stack(claim, entries)
    ]
    for side in _sides(claim):
        asked = _of_stacks(side)
        if machine := {
            name: version for name, version in side.items() if name.removesuffix(".version") not in asked
        }:
            parts.append(f"a machine with {_told(machine)}")
    return "; ".join(dict.fromkeys(parts))


def _without_stack(claim: Claim, entries: Mapping[str, StackEntry]) -> list[dict[str, str]]:
    """What of the claim's sides no stack of the stacks file promises."""
    asked = [held for side in _sides(claim) if (held := _of_stacks(side))]
    return [held for held in asked if not any(stacks.promises(entry, held) for entry in entries.values())]


def _sides(claim: Claim) -> list[Mapping[str, str]]:
    return [side for side in (claim.baseline, claim.candidate, claim.inside) if side]


def _of_stacks(wanted: Mapping[str, str]) -> dict[str, str]:
    """What of a side a stack can promise."""
    names = ((name.removesuffix(".version"), version) for name, version in wanted.items())
    return {name: version for name, version in names if name in stacks.COMPONENTS}


def _told(wanted: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in wanted.items())
