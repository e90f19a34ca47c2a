"""The section on everything that is missing from a comparison or in doubt: nothing is dropped unsaid."""

import re
from collections.abc import Iterable

import pandas as pd

from bench_lib.comparing.changes import Comparison
from bench_lib.comparing.store import Data
from bench_lib.drawing import charts
from bench_lib.model import BAD, Status
from bench_lib.pages.page import Block, Code, Inline, Mark, Names, Number, Section, Table

_NUMBER = r"\d+(?:\.\d+)?"
_ENDED = re.compile(rf": (?:{'|'.join(status for status in Status if status != Status.OK)}): ")
_LEFT_OUT = "Left out of the comparison:"


def section(comparison: Comparison, data: Data) -> Section:
    """What was left out, failed, was skipped, ended early, was flagged or warned about, with reasons."""
    cases = _labelled(data.cases, comparison.baseline)
    blocks: list[Block] = [
        *_table("Failed:", ("case", "side", "status", "reason", "runs"), _failed(cases)),
        *_table("Skipped or not applicable:", ("reason", "side", "status", "n", "cases"), _skipped(cases)),
        *_table(
            "Runs that ended early:", ("run", "side"), _incomplete(_labelled(data.runs, comparison.baseline))
        ),
        *_table("Flagged samples, kept:", ("case", "side", "flagged", "samples"), _flagged(cases)),
        *_table("Warnings:", ("warning", "side", "n", "cases"), _warnings(cases)),
        *_table(_LEFT_OUT, ("why", "n", "what"), _left_out(comparison.left_out)),
    ]
    return Section("Left out, failed, skipped, flagged", tuple(blocks) or ("Nothing.",))


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[Inline, ...]]) -> list[Block]:
    listed = tuple(rows)
    return [title, Table(head, listed)] if listed else []


def left_out(entries: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What was left out by reason, each name once; without what is told by how it ended: failed, skipped."""
    by_reason: dict[str, dict[str, None]] = {}
    for name, why in entries:
        if _ENDED.search(why):
            continue
        by_reason.setdefault(why, {})[name] = None
    return {why: list(names) for why, names in by_reason.items()}


def _left_out(entries: Iterable[tuple[str, str]]) -> Iterable[tuple[Inline, ...]]:
    for why, names in left_out(entries).items():
        yield why, Number(str(len(names)), len(names)), Names(tuple(names))


def _grouped(rows: pd.DataFrame, by: list[str]) -> Iterable[tuple[list[str], pd.DataFrame]]:
    for values, found in rows.groupby(by):
        yield [str(value) for value in values], found


def _labelled(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    parts = [part.assign(side=label) for label, part in charts.by_side(rows, baseline).items()]
    return pd.concat(parts) if parts else rows.assign(side="")


def _failed(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    bad = cases[cases["status"].isin([str(status) for status in BAD])]
    for (case_id, side, status, reason), found in _grouped(bad, ["case_id", "side", "status", "reason"]):
        yield Code(case_id), side, Mark(status, "failed"), reason, str(len(found))


def _skipped(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    skipped = cases[cases["status"].isin([str(Status.SKIPPED), str(Status.NOT_APPLICABLE)])]
    for (reason, status), found in _grouped(skipped, ["reason", "status"]):
        yield reason, " and ".join(sorted(set(found["side"]))), status, *_named(found["case_id"])


def _incomplete(runs: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    for run_id, side in runs.loc[~runs["complete"], ["run_id", "side"]].itertuples(index=False):
        yield Code(run_id), side


def _flagged(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    sums = cases[cases["n_flagged"] > 0].groupby(["case_id", "side"])[["n_flagged", "n_samples"]].sum()
    for (case_id, side), flagged, samples in sums.itertuples(name=None):
        yield Code(case_id), side, str(int(flagged)), str(int(samples))


def _warnings(cases: pd.DataFrame) -> Iterable[tuple[Inline, ...]]:
    warned = cases.explode("warnings").dropna(subset=["warnings"])
    warned = warned.assign(alike=warned["warnings"].str.replace(_NUMBER, "#", regex=True))
    for _, found in _grouped(warned, ["alike"]):
        yield alike(found["warnings"]), " and ".join(sorted(set(found["side"]))), *_named(found["case_id"])


def alike(warnings: Iterable[str]) -> str:
    """Warnings that differ in their numbers alone as one: `it left 0.6 to 1.7 GiB allocated`."""
    given = sorted(set(warnings))
    numbers = [re.findall(_NUMBER, one) for one in given]
    ends = iter([(min(each, key=float), max(each, key=float)) for each in zip(*numbers, strict=True)])
    return re.sub(_NUMBER, lambda _: " to ".join(dict.fromkeys(next(ends))), given[0])


def _named(case_ids: Iterable[str]) -> tuple[Inline, Inline]:
    """How many cases they are, and their names."""
    names = tuple(sorted(set(case_ids)))
    return Number(str(len(names)), len(names)), Names(names)
