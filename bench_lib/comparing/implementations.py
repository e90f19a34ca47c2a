"""What facts of cases add to their changes: which implementation ran, and where a choice went wrong.

A convolution is measured with `benchmark` off (cuDNN's heuristic chooses) and on (what was tried and
was fastest). When only the first moved, the choice is to blame; when both did, the kernels are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from bench_lib.comparing.changes import CaseChange, Change
from bench_lib.model import Case, Status

# The facts that name what ran. NVLS on one side alone is the difference, not a faster NCCL.
_IMPLEMENTATION = ("kernels", "algorithm", "nccl.algorithm", "nccl.protocol")
_UNKNOWN = "unknown"  # how a fact begins that could not be found out: it differs from nothing
_CHECKSUM = "checksum"
_NAMES = frozenset({*_IMPLEMENTATION, _CHECKSUM})
_PARAMETER, _HEURISTIC, _TRIED = "benchmark", "off", "on"
_LONGEST = 90  # of a kernel's name in a reason
_CHANGED = "implementation changed: "
_VARIES = "more rounds only average over what runs: compare cases in which it is fixed"

Ran = Mapping[str, Mapping[str, Counter[str]]]  # by case and name: values and in how many runs


def explained(
    changes: Sequence[CaseChange], baseline: pd.DataFrame, candidate: pd.DataFrame
) -> tuple[CaseChange, ...]:
    """The changes, their reasons with what the facts of the two sides' cases say."""
    a, b = _facts(baseline), _facts(candidate)
    by_name = {row.case_id: row.change for row in changes}
    found = []
    for row in changes:
        ours, theirs = a.get(row.case_id, {}), b.get(row.case_id, {})
        more = [*_regression(row, by_name), *_implementation(ours, theirs)]
        varying = list(_varying(ours, theirs)) if row.change is Change.UNCLEAR else []
        if more or varying:
            row = replace(row, reason="; ".join([row.reason, *more, *varying]))
        found.append(replace(row, next_step=_VARIES, lacking=0) if varying else row)
    return tuple(found)


def changed(row: CaseChange) -> str:
    """What an explained case ran on both sides, `fft → winograd`; "" where it ran the same, or none knows."""
    told = (part for part in row.reason.split("; ") if part.startswith(_CHANGED))
    return next(told, "").removeprefix(_CHANGED)


def tried(row: CaseChange, changes: Sequence[CaseChange]) -> CaseChange | None:
    """Of a case whose choice is the heuristic's, the same one where everything was tried first."""
    if row.params.get(_PARAMETER) != _HEURISTIC:
        return None
    name = Case(row.family, row.op, {**row.params, _PARAMETER: _TRIED}).case_id
    return next((one for one in changes if one.case_id == name), None)


def tries(row: CaseChange) -> bool:
    """Whether a case is one where everything was tried first."""
    return row.params.get(_PARAMETER) == _TRIED


def bits(baseline: pd.DataFrame, candidate: pd.DataFrame) -> list[str]:
    """A note: in how many of the cases checked on both sides the bits of the output differ."""
    a, b = _facts(baseline), _facts(candidate)
    both = [name for name in a.keys() & b.keys() if _CHECKSUM in a[name] and _CHECKSUM in b[name]]
    if not both:
        return []
    differ = sum(_apart(a[name][_CHECKSUM], b[name][_CHECKSUM]) for name in both)
    return [f"the bits of the output differ in {differ} of {len(both)} cases that were checked on both sides"]


def ran(cases: pd.DataFrame) -> Ran:
    """What ran in each case: its kernels or its algorithm, by the fact that names them."""
    return {
        case: {name: values for name, values in facts.items() if name != _CHECKSUM}
        for case, facts in _facts(cases).items()
    }


def _facts(cases: pd.DataFrame) -> Ran:
    found: dict[str, dict[str, Counter[str]]] = {}
    good = cases[cases["status"] == Status.OK]
    for case_id, facts in zip(good["case_id"].to_numpy(), good["facts"], strict=True):
        for name in _NAMES.intersection(facts) if facts and isinstance(facts, Mapping) else ():
            value = facts[name]
            if value and not value.startswith(_UNKNOWN):
                found.setdefault(case_id, {}).setdefault(name, Counter())[value] += 1
    return found


def _regression(row: CaseChange, changes: Mapping[str, Change]) -> Iterator[str]:
    if row.change is not Change.SLOWER or row.params.get(_PARAMETER) not in (_HEURISTIC, _TRIED):
        return
    other = _TRIED if row.params[_PARAMETER] == _HEURISTIC else _HEURISTIC
    there = changes.get(Case(row.family, row.op, {**row.params, _PARAMETER: other}).case_id)
    if there is Change.SLOWER:
        yield f"kernel regression: slower with {_PARAMETER} {_HEURISTIC} and {_TRIED}"
    elif row.params[_PARAMETER] == _HEURISTIC and there in (Change.SAME, Change.FASTER):
        yield f"heuristic regression: slower with {_PARAMETER}={_HEURISTIC} alone"


def _implementation(a: Mapping[str, Counter[str]], b: Mapping[str, Counter[str]]) -> Iterator[str]:
    for name in _IMPLEMENTATION:
        if name in a and name in b and _apart(a[name], b[name]):
            before, after = (_short(_commonest(side[name])[0][0]) for side in (a, b))
            yield f"{_CHANGED}{before} → {after}"


def _varying(a: Mapping[str, Counter[str]], b: Mapping[str, Counter[str]]) -> Iterator[str]:
    """Where the runs of one side took several implementations, which of them each side took how often."""
    for name in _IMPLEMENTATION:
        if max(len(a.get(name, ())), len(b.get(name, ()))) > 1:
            sides = [
                ", ".join(f"{_short(value)} in {n}" for value, n in _commonest(side[name]))
                for side in (a, b)
                if name in side
            ]
            yield f"what runs varies from run to run: {' | '.join(sides)}"


def _commonest(found: Counter[str]) -> list[tuple[str, int]]:
    """Values and in how many runs, the most first; of as many by name: runs have no order of their own."""
    return sorted(found.items(), key=lambda one: (-one[1], one[0]))


def _apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether no run of one side says what a run of the other says: a choice may vary by itself."""
    return not a.keys() & b.keys()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
