"""The section on everything that is missing from a comparison or in doubt: nothing is dropped unsaid."""

from collections.abc import Iterable

import pandas as pd

from bench_lib import charts
from bench_lib.model import BAD, Comparison, Status
from bench_lib.page import Bullets, Code, Inline, Section, Table
from bench_lib.store import Data

_NAMES = 8  # shown of many that share a reason

Block = Inline | Table | Bullets


def section(comparison: Comparison, data: Data) -> Section:
    """What was left out, failed, was skipped, ended early, was flagged or warned about, with reasons."""
    cases = _labelled(data.cases, comparison.baseline)
    blocks: list[Block] = [
        *_table(
            "Left out of the comparison:", ("what", "why"), ((Code(a), b) for a, b in comparison.left_out)
        ),
        *_table("Failed:", ("case", "side", "status", "reason", "runs"), _failed(cases)),
        *_table("Skipped or not applicable:", ("reason", "side", "status", "cases"), _skipped(cases)),
        *_table(
            "Runs that ended early:", ("run", "side"), _incomplete(_labelled(data.runs, comparison.baseline))
        ),
        *_table("Flagged samples, kept:", ("case", "side", "flagged", "samples"), _flagged(cases)),
        *_table("Warnings:", ("warning", "side", "cases"), _warnings(cases)),
    ]
    return Section("Left out, failed, skipped, flagged", tuple(blocks) or ("Nothing.",))


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[Inline, ...]]) -> list[Block]:
    listed = tuple(rows)
    return [title, Table(head, listed)] if listed else []


def _grouped(rows: pd.DataFrame, by: list[str]) -> Iterable[tuple[list[str], pd.DataFrame]]:
    for values, found in rows.groupby(by):
        yield [str(value) for value in values], found


def _labelled(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    arms = charts.by_arm(rows, baseline).items()
    parts = [part.assign(side=label) for label, part in arms]
    return pd.concat(parts) if parts else rows.assign(side="")


def _failed(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    bad = cases[cases["status"].isin([str(status) for status in BAD])]
    for (case_id, side, status, reason), found in _grouped(bad, ["case_id", "side", "status", "reason"]):
        yield Code(case_id), side, status, reason, str(len(found))


def _skipped(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    skipped = cases[cases["status"].isin([str(Status.SKIPPED), str(Status.NOT_APPLICABLE)])]
    for (reason, side, status), found in _grouped(skipped, ["reason", "side", "status"]):
        yield reason, side, status, _names(found["case_id"])


def _incomplete(runs: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    for run_id, side in runs.loc[~runs["complete"], ["run_id", "side"]].itertuples(index=False):
        yield Code(run_id), side


def _flagged(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    sums = cases[cases["n_flagged"] > 0].groupby(["case_id", "side"])[["n_flagged", "n_samples"]].sum()
    for (case_id, side), flagged, samples in sums.itertuples(name=None):
        yield Code(case_id), side, str(int(flagged)), str(int(samples))


def _warnings(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    warned = cases.explode("warnings").dropna(subset=["warnings"])
    for (warning, side), found in _grouped(warned, ["warnings", "side"]):
        yield warning, side, _names(found["case_id"])


def _names(case_ids: Iterable[str]) -> Inline:
    """The cases by name, the first few of many."""
    names = sorted(set(case_ids))
    listed = [part for name in names[:_NAMES] for part in (Code(name), ", ")][:-1]
    return (*listed, f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
