"""Two sides in, one Comparison out: what differs, the canaries, and each case with its change."""

import pandas as pd

from bench_lib.comparing import calibrate, machines
from bench_lib.comparing.changes import FLAGGED_CANARIES, NO_CANARY, Change, Comparison
from bench_lib.comparing.contrast import contrast as contrast
from bench_lib.comparing.differences import attribution, differences, unknown, with_builds
from bench_lib.comparing.implementations import bits, explained
from bench_lib.comparing.installations import Alternations, alternations, by_installation, drivers_differ
from bench_lib.comparing.loaded import without_other_families
from bench_lib.comparing.matching import REMEDIES, Matched, match, other_margins
from bench_lib.comparing.replicates import DOUBTED, Replicates, replicates
from bench_lib.comparing.sides import Side
from bench_lib.comparing.verdicts import NOT_INTERLEAVED, Groups, Pairing, grouped
from bench_lib.errors import UsageError
from bench_lib.model import CANARY, NULL_SUFFIX
from bench_lib.observing import notes as observed
from bench_lib.thermal import warm

ALTERNATE = (
    "two drivers cannot share a round: install them in turns, each three times (A B A B A B), and every "
    "installation becomes one value, neighbours a pair"
)
_NOTHING_SHOWS = "so nothing shows that the machine stayed the same"


def compare(a: Side, b: Side, values: tuple[Replicates, Replicates] | None = None) -> Comparison:
    """Baseline `a` against candidate `b`, case by case; `values` of both where they are known already.

    Runs are paired within rounds where the sides share rounds; installations are where two drivers
    alternated; else runs are compared as independent ones, which every row then says. Raises
    UsageError when both sides are the same runs.
    """
    runs_a, runs_b = a.data.runs, b.data.runs
    if set(runs_a["run_id"]) & set(runs_b["run_id"]):
        raise UsageError(
            f"{a.label!r} and {b.label!r} name the same runs; name two stacks, "
            "or the second run of a baseline as NAME#2"
        )
    measured = values or (replicates(a.data), replicates(b.data))
    turns = alternations(runs_a, runs_b)
    pairing = _pairing(runs_a, runs_b, turns)
    in_rounds = pairing is Pairing.ROUNDS
    matched = _matched(a, b, measured, pairing, turns)
    groups = grouped(matched.rows, pairing)
    differing, other_families = without_other_families(differences(runs_a, runs_b), a, b)
    found = with_builds(differing, a.data.cases, b.data.cases)
    differ = machines.spreads(groups.cases, runs_a)
    return Comparison(
        baseline=a.label,
        candidate=b.label,
        campaign=" / ".join(dict.fromkeys([a.campaign, b.campaign])),
        interleaved=in_rounds,
        pairing=pairing,
        differences=found,
        attribution="; ".join(filter(None, (attribution(found, unknown(runs_a, runs_b)), other_families))),
        canaries=groups.canaries,
        canaries_moved=bool(groups.moved),
        cases=explained(machines.told(groups.cases, differ), a.data.cases, b.data.cases),
        quantities=groups.quantities,
        left_out=(
            *dict.fromkeys([*a.data.skipped, *b.data.skipped]),
            *(_without_partner(a, b) if in_rounds else ()),
            *(_without_neighbour(turns) if pairing is Pairing.INSTALLATIONS else ()),
            *matched.left_out,
        ),
        notes=(
            *_canary_notes(groups, measured),
            *_notes(a, b, pairing, turns),
            *other_margins(*measured),
            *_against_itself(a, b, measured[0], groups.changed),
            *bits(a.data.cases, b.data.cases),
        ),
        machines_differ=differ,
    )


def _pairing(a: pd.DataFrame, b: pd.DataFrame, turns: Alternations | None) -> Pairing:
    if _share_a_round(a, b):
        return Pairing.ROUNDS
    return Pairing.INSTALLATIONS if turns else Pairing.UNPAIRED


def _matched(
    a: Side,
    b: Side,
    measured: tuple[Replicates, Replicates],
    pairing: Pairing,
    turns: Alternations | None,
) -> Matched:
    labels = (a.label, b.label)
    if pairing is Pairing.INSTALLATIONS and turns:
        one, other = (by_installation(found, turns.pairs) for found in measured)
        return match(one, other, labels, "round")
    return match(*measured, labels, "round" if pairing is Pairing.ROUNDS else "")


def _share_a_round(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Whether any round holds runs of both sides on one boot and GPU."""
    on = ["round", "boot_id", "gpu_uuid"]
    return not a.loc[a["round"] != "", on].merge(b[on], on=on).empty


def _without_partner(a: Side, b: Side) -> list[tuple[str, str]]:
    found = []
    for side, other in ((a, b), (b, a)):
        runs = side.data.runs
        alone = runs[~runs["round"].isin(set(other.data.runs["round"]) - {""})]
        why = f"{side.label}: its round holds no run of the other side"
        found += [(f"run {run_id}", why) for run_id in alone["run_id"]]
    return found


def _without_neighbour(turns: Alternations | None) -> list[tuple[str, str]]:
    return [(f"run {run}", "its installation has no neighbour") for run in (turns.alone if turns else ())]


def _against_itself(a: Side, b: Side, measured: Replicates, changed: bool) -> list[str]:
    """The baseline against its own repeat in one line, where the campaign holds that."""
    if a.repeat is None or set(a.repeat.runs["run_id"]) & set(b.data.runs["run_id"]):
        return []
    again = a.label + NULL_SUFFIX
    rows = match(measured, replicates(a.repeat), (a.label, again), "round").rows
    groups = grouped(rows, Pairing.ROUNDS)
    canaries, moved, cases = groups.canaries, bool(groups.moved), groups.cases
    null = Comparison(a.label, again, a.campaign, True, Pairing.ROUNDS, (), "", canaries, moved, cases)
    line = calibrate.quoted(null, changed)
    return [line] if line else []


def _canary_notes(groups: Groups, measured: tuple[Replicates, Replicates]) -> list[str]:
    if groups.moved:
        worst = max(groups.moved, key=lambda row: abs((row.ratio or 1.0) - 1.0))
        return [
            f"THE MACHINE CHANGED between the sides: {len(groups.moved)} of {len(groups.canaries)} canaries "
            f"moved ({worst.case_id}: {worst.reason}), which no software upgrade explains, "
            "so do not put the changes below down to the stack"
        ]
    if all(row.change is Change.NOT_COMPARABLE for row in groups.canaries):
        return [_flagged_canaries(measured) or f"{NO_CANARY}, {_NOTHING_SHOWS}"]
    return []


def _flagged_canaries(measured: tuple[Replicates, Replicates]) -> str:
    """That both sides measured canaries and flagged samples kept them out, and what to do; "" else."""
    rejected = [side.rejected[side.rejected["family"] == CANARY] for side in measured]
    flagged = [canaries["why"][canaries["why"].str.startswith(DOUBTED)] for canaries in rejected]
    usable = [(side.values["family"] == CANARY).any() for side in measured]
    if not all(some or len(whys) for some, whys in zip(usable, flagged, strict=True)):
        return ""
    whys = {why for of_side in flagged for why in of_side}
    for flag, remedy in REMEDIES.items():
        if f"{DOUBTED} {flag}" in whys:
            many = f"over 10 % of their samples are {flag}"
            return f"{FLAGGED_CANARIES}: {many}, {_NOTHING_SHOWS}; {remedy} and measure again"
    return f"{FLAGGED_CANARIES}, {_NOTHING_SHOWS}" if whys else ""


def _nothing_shared(a: Side, b: Side) -> list[str]:
    """Said where the sides hold different families: results of another tool against ours, say."""
    held = [set(side.data.cases["family"].unique()) for side in (a, b)]
    if not all(held) or held[0] & held[1]:
        return []
    told = [f"{side.label} holds {', '.join(sorted(own))}" for side, own in zip((a, b), held, strict=True)]
    return [f"nothing is compared: {' and '.join(told)}, and only what was measured in one way is compared"]


def _notes(a: Side, b: Side, pairing: Pairing, turns: Alternations | None) -> list[str]:
    notes = []
    if pairing is Pairing.UNPAIRED:
        notes.append(NOT_INTERLEAVED)
        if drivers_differ(a.data.runs, b.data.runs):
            notes.append(ALTERNATE)
    if turns and pairing is Pairing.INSTALLATIONS:
        notes.append(turns.note)
    notes += _nothing_shared(a, b)
    notes += observed.notes((a.label, b.label), (a.data.runs, b.data.runs))
    notes += observed.on_code((a.data.runs, b.data.runs))
    stacks = set(a.data.runs["stack"]) | set(b.data.runs["stack"])
    if len(stacks) == 1 and pairing is Pairing.ROUNDS:
        notes.append(f"A/A: both sides are {stacks.pop()}, so any faster or slower here is a false alarm")
    for side in (a, b):
        notes += warm.notes(side.label, side.data.runs)
        ended_early = int((~side.data.runs["complete"]).sum())
        if ended_early:
            runs = "run is" if ended_early == 1 else "runs are"
            notes.append(
                f"{side.label}: {ended_early} {runs} incomplete; the cases finished in them are used"
            )
    return notes
