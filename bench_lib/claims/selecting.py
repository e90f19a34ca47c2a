"""A claim's scope and the cases of results: which are selected, and their values for judging."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd

from bench_lib.claims import derived
from bench_lib.claims.values import CaseValues
from bench_lib.claims.words import Claim, Scope
from bench_lib.comparing import stats
from bench_lib.comparing.changes import CaseChange, Change, Comparison
from bench_lib.comparing.replicates import SECONDS, Replicates, params_of
from bench_lib.comparing.store import Data
from bench_lib.model import scalar_text

CaseKey = tuple[str, str, str]  # family, op, parameters as JSON
_CASE = ["case_id", "family", "op", "params"]
_WAY = ["device", "timing", "policy", "calls"]  # in which a case was measured


def matches(scope: Scope, family: str, op: str, params: Mapping[str, Any], ignoring: str = "") -> bool:
    """Whether a case is in a scope; `ignoring` is the parameter that a contrast took out of it."""
    if scope.family != family or not fnmatchcase(op, scope.op):
        return False
    return all(
        name == ignoring
        or (name in params and any(fnmatchcase(scalar_text(params[name]), glob) for glob in globs))
        for name, globs in scope.params.items()
    )


def selected(claim: Claim, family: str, op: str, params: Mapping[str, Any], ignoring: str = "") -> bool:
    """Whether any scope of a claim holds the case."""
    return any(matches(scope, family, op, params, ignoring) for scope in claim.cases)


def measured(held: Mapping[CaseKey, int], claim: Claim, ignoring: str = "") -> bool:
    """Whether a claim selects any of these cases, and each that it does was measured with ranks enough."""
    families = claim.families  # most cases are of others: their parameters need not be read
    own = [
        ranks
        for (family, op, text), ranks in held.items()
        if family in families and selected(claim, family, op, params_of(text), ignoring)
    ]
    return bool(own) and min(own) >= claim.ranks


def values_of(held: Iterable[CaseKey], claim: Claim, parameter: str) -> set[str]:
    """The values that a parameter has among the cases a claim selects."""
    found, families = set(), claim.families
    for family, op, text in held:
        if family not in families:
            continue
        params = params_of(text)
        if parameter in params and selected(claim, family, op, params, parameter):
            found.add(scalar_text(params[parameter]))
    return found


def units(found: Replicates, claim: Claim) -> set[str]:
    """The units in which the cases that a claim selects have values: seconds, and their quantities."""
    rows = found.values[["family", "op", "params", "unit"]].drop_duplicates()
    taken = [one.parameter for one in claim.contrasts] or [""]
    return {
        str(unit)
        for family, op, text, unit in rows.itertuples(index=False)
        if any(selected(claim, family, op, params_of(text), one) for one in taken)
    }


def of_comparison(claim: Claim, comparison: Comparison, ignoring: str) -> list[CaseChange]:
    """The rows of a comparison that a claim selects: cases, or the quantity that it is about."""
    if claim.unit == SECONDS:
        rows: Sequence[CaseChange] = (*comparison.canaries, *comparison.cases)
    else:
        rows = [row for row in comparison.quantities if row.unit == claim.unit]
    return [row for row in rows if selected(claim, row.family, row.op, row.params, ignoring)]


def case_values(row: CaseChange) -> CaseValues:
    """A row of a comparison as values to judge."""
    failed = row.reason if row.change is Change.NOT_COMPARABLE else ""
    return CaseValues(
        row.case_id, row.log_ratios, row.pairs, row.floor, row.margin, row.change, failed=failed
    )


def group_of(claim: Claim, family: str, op: str, params: Mapping[str, Any]) -> str:
    """The group a case is judged in, as text: `network=resnet50`; "" where a claim declares none."""
    known = {"family": family, "op": op, **params}
    return ", ".join(f"{name}={scalar_text(known[name])}" for name in claim.groups if name in known)


def of_values(claim: Claim, data: Data, found: Replicates) -> dict[str, list[CaseValues]]:
    """The values themselves of the selected cases, a value a run, by group; for claims about a value."""
    values = derived.values(claim.unit, data, found.values)
    own = values[values["value"] > 0]
    way = own.groupby(_WAY, dropna=False, sort=False).ngroup()
    groups: dict[str, list[CaseValues]] = {}
    for (case_id, family, op, text), rows in own.assign(way=way).groupby(_CASE, sort=False):
        params = params_of(str(text))
        if selected(claim, str(family), str(op), params):
            case = _case_of_runs(str(case_id), rows)
            groups.setdefault(group_of(claim, str(family), str(op), params), []).append(case)
    return groups


def _case_of_runs(case_id: str, rows: pd.DataFrame) -> CaseValues:
    """One case over the runs that measured it in the `way` most of them did."""
    most = Counter(rows["way"].tolist()).most_common(1)[0][0]
    own = rows[rows["way"] == most].drop_duplicates("run_id")
    step, middle = float(own["step"].fillna(0.0).max()), float(own["value"].median())
    floor = float(stats.spread_floor(np.array([step]), np.array([middle]))[0])
    return CaseValues(
        case_id, tuple(np.log(own["value"])), tuple(own["run_id"]), floor, float(own["margin"].max())
    )
