"""A comparison in, the same with what is left to measure out: what it takes, and the command to type."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.compare import ALTERNATE
from bench_lib.comparing.sides import Side
from bench_lib.comparing.stats import FEWEST
from bench_lib.comparing.verdicts import SETTLED, Pairing, more
from bench_lib.errors import UsageError
from bench_lib.journaling import planned
from bench_lib.journaling.held import IMPORTED
from bench_lib.journaling.planned import Planned
from bench_lib.layout import CampaignFolder
from bench_lib.model import CANARY, NULL_SUFFIX
from bench_lib.units import duration_text

_ROUNDS = 10  # of a campaign that is proposed
_OLDER = "OLDER"  # the name of a stack that is still to be made


def told(found: Comparison, sides: Sequence[Side], results: Path) -> Comparison:
    """The comparison of `sides` (of one, for a contrast), with `next_step`, and what each row's would take.

    Commands begin with `cuda-gains`, wherever that lies here: a page is read elsewhere. `results` is the
    folder that holds the campaigns.
    """
    plan, seconds = _plan(sides, results), seconds_each(found.pairing, sides, results)
    return replace(
        found,
        canaries=_priced(found.canaries, seconds),
        cases=_priced(found.cases, seconds),
        quantities=_priced(found.quantities, seconds),
        next_step=_next(found, sides, plan, seconds),
    )


def seconds_each(pairing: str, sides: Sequence[Side], results: Path) -> float | None:
    """What one more replicate takes: a round, a run, or a run of each side; None where none tells.

    What an installation takes is in no results.
    """
    plan = _plan(sides, results)
    if plan is not None and plan.round_seconds is not None and pairing in (Pairing.ROUNDS, Pairing.RUNS):
        return plan.round_seconds / (_runs_a_round(plan, sides[0]) if pairing == Pairing.RUNS else 1)
    families = _families(sides)
    runs = pairing in (Pairing.RUNS, Pairing.UNPAIRED)
    each = [_run_seconds(side, families) for side in sides] if runs else [None]
    known = [seconds for seconds in each if seconds is not None]
    return sum(known) if len(known) == len(each) else None


def _families(sides: Sequence[Side]) -> set[str]:
    """What all sides measured, and the canaries: without them nothing tells a machine from a stack."""
    return {CANARY, *set.intersection(*(set(side.data.cases["family"]) for side in sides))}


def _run_seconds(side: Side, families: set[str]) -> float | None:
    """What a run of these families takes: the median of what past runs took, without their other families.

    None where none says when it ended.
    """
    runs, cases = side.data.runs, side.data.cases.sort_values(["run_id", "started_at"])
    # A case lasts until the next one of its run begins, the last as long as it says.
    lasted = -cases.groupby("run_id")["started_at"].diff(-1).dt.total_seconds()
    lasted = lasted.fillna(cases["wall_seconds"]).fillna(0.0)
    others = lasted[~cases["family"].isin(families)].groupby(cases["run_id"]).sum()
    took = (runs["ended_at"] - runs["started_at"]).dt.total_seconds()
    took = (took - runs["run_id"].map(others).fillna(0.0)).dropna()
    return max(float(took.median()), 0.0) if len(took) else None


def _runs_a_round(plan: Planned, side: Side) -> int:
    """How many runs a round of the campaign holds of one stack: two of a baseline that is repeated."""
    stacks = set(side.data.runs["stack"])
    return max(1, sum(arm.removesuffix(NULL_SUFFIX) in stacks for arm in plan.arms))


def _plan(sides: Sequence[Side], results: Path) -> Planned | None:
    """The plan of the one campaign that all sides are in, where their runs are its rounds."""
    names = {side.campaign for side in sides}
    in_rounds = all((side.data.runs["round"] != "").any() for side in sides)
    if len(names) > 1 or not in_rounds:
        return None
    try:
        return planned.of(CampaignFolder(results, names.pop()))
    except UsageError:  # a name out of a file
        return None


def _about(n: float, seconds: float | None, before: str = "about ") -> str:
    return "" if seconds is None else f"{before}{duration_text(n * seconds)}"


def priced(step: str, lacking: int, seconds: float | None) -> str:
    """What to measure with what it takes, where one of those that are lacking takes so many seconds."""
    if not lacking or seconds is None:
        return step
    takes = _about(lacking, seconds)
    return f"{step[:-1]}; {takes})" if step.endswith(")") else f"{step} ({takes})"


def _priced(rows: Sequence[CaseChange], seconds: float | None) -> tuple[CaseChange, ...]:
    return tuple(replace(row, next_step=priced(row.next_step, row.lacking, seconds)) for row in rows)


def _next(found: Comparison, sides: Sequence[Side], plan: Planned | None, seconds: float | None) -> str:
    if not found.compared:
        return ""
    if found.canaries_moved:
        return "cuda-gains doctor  # no rounds mend a machine that changed: find what did, measure both again"
    if found.pairing == Pairing.UNPAIRED:
        return _interleave(found, sides)
    slower = found.counts()[Change.SLOWER]
    unclear = [row for row in found.cases if row.change is Change.UNCLEAR]
    if (slower and not found.mostly_unclear) or not unclear:
        return _settled(slower, len(unclear))
    lacking = [row.lacking for row in unclear if row.lacking]
    if not lacking:
        which = "the unclear case" if len(unclear) == 1 else f"the {len(unclear)} unclear cases"
        return f"none: no number of rounds settles {which}; what does stands beside each"
    return _more(max(lacking), len(lacking), found, sides, plan, seconds)


def _settled(slower: int, unclear: int) -> str:
    told = ""
    if slower:
        told = f", the {'slower case needs' if slower == 1 else f'{slower} slower cases need'} no more rounds"
    beside = "; what would settle those that are unclear stands beside each" if unclear > 1 else ""
    return f"{SETTLED}{told}{beside or ('; what would settle the unclear one stands beside it' * unclear)}"


def _more(
    n: int, of: int, found: Comparison, sides: Sequence[Side], plan: Planned | None, seconds: float | None
) -> str:
    """The command that measures `n` more, for the `of` cases that so many should settle."""
    takes = _about(n, seconds, ", about ")
    few = max(row.n for row in found.cases) < FEWEST
    cases = f"{of} unclear case{'s' * (of != 1)}"
    many = more(n, Pairing(found.pairing))
    why = f"{many}, which a verdict needs{takes}" if few else f"about {many} should settle {cases}{takes}"
    if found.pairing == Pairing.INSTALLATIONS:
        return f"install both drivers in turns again: {why}"
    if plan is None:
        again = _again(found, sides)
        return f"{again}  # {why}" if again else why
    each = _runs_a_round(plan, sides[0]) if found.pairing == Pairing.RUNS else 1
    return f"{plan.command(math.ceil(n / each))}  # {why}"


def _again(found: Comparison, sides: Sequence[Side]) -> str:
    """The command that adds a run to a contrast of plain runs; "" where it is not one, or another tool's."""
    runs = sides[0].data.runs
    commands = set(runs["command"])
    if found.pairing != Pairing.RUNS or len(commands) != 1 or (runs["round"] != "").any():
        return ""
    (command,) = map(str, commands)
    return "" if command.startswith(IMPORTED) else command


def _interleave(found: Comparison, sides: Sequence[Side]) -> str:
    """What more runs of sides that never shared a round do not mend, and what does."""
    mend = "more runs do not mend what was not interleaved"
    if any(one.axis == "driver" for one in found.differences):
        return f"{mend}; {ALTERNATE}"
    runs = [side.data.runs for side in sides]
    if any(of["command"].str.startswith(IMPORTED).any() for of in runs):
        return ""  # another tool's results, which this suite does not measure again
    (old, new) = (str(of["stack"].iloc[-1]) for of in runs)
    names = [_OLDER if old == new else old, new]
    families = _families(sides)
    words = ["cuda-gains", "run", *(word for name in names for word in ("--stack", name))]
    words += ["--rounds", str(_ROUNDS), *(word for name in sorted(families) for word in ("--family", name))]
    words += ["--quick"] if all((of["policy"] == "quick").all() for of in runs) else []
    words += ["--campaign", "-vs-".join(names)]
    each = [_run_seconds(side, families) for side in sides]
    takes = "" if None in each else _about(_ROUNDS, 2 * (each[0] or 0) + (each[1] or 0), ", about ")
    least = FEWEST - max((row.n for row in found.cases), default=0)
    without = f"; a verdict without them needs {more(least, Pairing.UNPAIRED)}" if least > 0 else ""
    kept = f"; {_OLDER} is the earlier environment, kept as a stack (docs/stacks-and-campaigns.md)"
    return f"{shlex.join(words)}  # {mend}, rounds of both do{takes}{without}{kept * (old == new)}"
