"""Two sides in, one Comparison out: what differs, the canaries, and each case with its change."""

import pandas as pd

from bench_lib.contrast import contrast as contrast
from bench_lib.differences import attribution, differences
from bench_lib.errors import UsageError
from bench_lib.implementations import bits, explained
from bench_lib.matching import match
from bench_lib.model import Comparison
from bench_lib.replicates import replicates
from bench_lib.sides import Side
from bench_lib.verdicts import NOT_INTERLEAVED, Groups, Pairing, grouped


def compare(a: Side, b: Side) -> Comparison:
    """Baseline `a` against candidate `b`, case by case.

    Runs are paired within rounds where the sides share rounds, else compared as independent runs,
    which every row then says. Raises UsageError when both sides are the same runs.
    """
    runs_a, runs_b = a.data.runs, b.data.runs
    if set(runs_a["run_id"]) & set(runs_b["run_id"]):
        raise UsageError(
            f"{a.label!r} and {b.label!r} name the same runs; name two stacks, "
            "or the second run of a baseline as NAME#2"
        )
    pairing = Pairing.ROUNDS if _share_a_round(runs_a, runs_b) else Pairing.UNPAIRED
    labels = (a.label, b.label)
    on = "round" if pairing is Pairing.ROUNDS else ""
    matched = match(replicates(a.data), replicates(b.data), labels, on)
    groups = grouped(matched.rows, pairing)
    found = differences(runs_a, runs_b)
    alone = _without_partner(runs_a, runs_b, a.label) + _without_partner(runs_b, runs_a, b.label)
    return Comparison(
        baseline=a.label,
        candidate=b.label,
        campaign=" / ".join(dict.fromkeys([a.campaign, b.campaign])),
        interleaved=pairing is Pairing.ROUNDS,
        pairing=pairing,
        differences=found,
        attribution=attribution(found),
        canaries=groups.canaries,
        canaries_moved=bool(groups.moved),
        cases=explained(groups.cases, a.data.cases, b.data.cases),
        quantities=groups.quantities,
        left_out=(
            *dict.fromkeys([*a.data.skipped, *b.data.skipped]),
            *(alone if pairing is Pairing.ROUNDS else ()),
            *matched.left_out,
        ),
        notes=(*_canary_notes(groups), *_notes(a, b, pairing), *bits(a.data.cases, b.data.cases)),
    )


def _share_a_round(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Whether any round holds runs of both sides on one boot and GPU."""
    on = ["round", "boot_id", "gpu_uuid"]
    return not a.loc[a["round"] != "", on].merge(b[on], on=on).empty


def _without_partner(runs: pd.DataFrame, other: pd.DataFrame, label: str) -> list[tuple[str, str]]:
    alone = runs[~runs["round"].isin(set(other["round"]) - {""})]
    why = f"{label}: its round holds no run of the other side"
    return [(f"run {run_id}", why) for run_id in alone["run_id"]]


def _canary_notes(groups: Groups) -> list[str]:
    if groups.moved:
        worst = max(groups.moved, key=lambda row: abs((row.ratio or 1.0) - 1.0))
        return [
            f"THE MACHINE CHANGED between the sides: {len(groups.moved)} of {len(groups.canaries)} canaries "
            f"moved ({worst.case_id}: {worst.reason}), which no software upgrade explains, "
            "so do not put the changes below down to the stack"
        ]
    if not groups.canaries:
        return ["no canary was measured on both sides, so nothing shows that the machine stayed the same"]
    return []


def _notes(a: Side, b: Side, pairing: Pairing) -> list[str]:
    notes = []
    if pairing is Pairing.UNPAIRED:
        notes.append(NOT_INTERLEAVED)
    stacks = set(a.data.runs["stack"]) | set(b.data.runs["stack"])
    if len(stacks) == 1 and pairing is Pairing.ROUNDS:
        notes.append(f"A/A: both sides are {stacks.pop()}, so any faster or slower here is a false alarm")
    for side in (a, b):
        ended_early = int((~side.data.runs["complete"]).sum())
        if ended_early:
            runs = "run is" if ended_early == 1 else "runs are"
            notes.append(
                f"{side.label}: {ended_early} {runs} incomplete; the cases finished in them are used"
            )
    return notes
