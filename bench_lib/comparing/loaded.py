"""What one side loaded only because it measured other families: that is no difference of the stacks."""

from collections.abc import Mapping, Sequence

import pandas as pd

from bench_lib.comparing.changes import Difference
from bench_lib.comparing.differences import ABSENT
from bench_lib.comparing.sides import Side


def without_other_families(
    found: Sequence[Difference], a: Side, b: Side
) -> tuple[tuple[Difference, ...], str]:
    """The differences without those, and a clause on the families that differ; "" where none was left out.

    A run stores what it loaded, not what is installed. A component that one side never loaded differs only
    where a run of the other side loaded it and measured no family that the first did not measure.
    """
    families = [set(side.data.cases["family"]) for side in (a, b)]
    kept, told = [], []
    for one in found:
        if one.axis != "stack" or ABSENT not in (one.baseline, one.candidate):
            kept.append(one)
            continue
        here = 0 if one.candidate == ABSENT else 1  # the side that loaded it
        if _loaded_with(one.component, (a, b)[here], families[1 - here]):
            kept.append(one)
        else:
            told.append((here, one.component))
    clauses = []
    for here, side in enumerate((a, b)):
        if names := [component for at, component in told if at == here]:
            only = ", ".join(sorted(families[here] - families[1 - here]))
            clauses.append(f"{only} on {side.label} only (what is loaded there alone: {', '.join(names)})")
    return tuple(kept), f"families measured differ: {', '.join(clauses)}" if clauses else ""


def _loaded_with(component: str, side: Side, families: set[str]) -> bool:
    """Whether a run of the side loaded it and measured none but these families."""
    runs: pd.DataFrame = side.data.runs
    of_run = side.data.cases.groupby("run_id")["family"].agg(set).to_dict()
    return any(
        of_run.get(run_id, set()) <= families
        for run_id, identity in zip(runs["run_id"], runs["stack_identity"], strict=True)
        if isinstance(identity, Mapping) and any(key.partition(".")[0] == component for key in identity)
    )
