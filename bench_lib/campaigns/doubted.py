"""Which cases of some runs a comparison will leave out for their flagged samples, told while it is cheap."""

from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from bench_lib.journaling.readable import rows
from bench_lib.layout import CampaignFolder
from bench_lib.model import Status, too_many_flagged

_MOST_CASES = 0.10  # share of the measured cases up to which nothing is said


def doubted(folder: CampaignFolder, runs: Collection[str]) -> str:
    """`12 flagged preempted`: cases of these runs with too many flagged samples, and the commonest flag.

    "" where they are at most a tenth of the measured cases.
    """
    names = ["run_id", "case_id", "status", "n_samples", "n_flagged"]
    cases = [case for case in rows(_files(folder, "cases", runs), names) if case["status"] == Status.OK]
    found = {
        (case["run_id"], case["case_id"])
        for case in cases
        if too_many_flagged(case["n_flagged"] or 0, case["n_samples"] or 0)
    }
    if len(found) <= _MOST_CASES * len(cases):
        return ""
    samples = rows(_files(folder, "samples", runs), ["run_id", "case_id", "flags"])
    flags = Counter(
        one["flags"] for one in samples if (one["run_id"], one["case_id"]) in found and one["flags"]
    )
    commonest = flags.most_common(1)
    return f"{len(found)} flagged {commonest[0][0] if commonest else ''}".rstrip()


def _files(folder: CampaignFolder, table: str, runs: Iterable[str]) -> list[Path]:
    return [path for run in runs if (path := folder.table(table, run)).exists()]
