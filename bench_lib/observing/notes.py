"""What a comparison says of runs that were measured for a profiler."""

import pandas as pd

from bench_lib.observing.settings import NVTX, PROFILER


def notes(labels: tuple[str, str], sides: tuple[pd.DataFrame, pd.DataFrame]) -> list[str]:
    """A sentence where runs with --nvtx meet runs without, and one for a side with a profiler attached.

    `sides` are the runs of both sides.
    """
    ranged = [_share(runs, NVTX) for runs in sides]
    found = []
    if len({*ranged}) > 1 or 0 < ranged[0] < 1:
        told = " and ".join(
            f"{_count(runs, NVTX)} of {len(runs)} runs of {label}"
            for label, runs in zip(labels, sides, strict=True)
        )
        found.append(
            f"ranges of NVTX (--nvtx) were around the cases in {told}: they, and a profiler that reads them, "
            "take time, so measure both sides without"
        )
    for label, runs in zip(labels, sides, strict=True):
        if profiled := _count(runs, PROFILER):
            found.append(
                f"{label}: {profiled} of {len(runs)} runs were measured under a profiler, which adds to "
                "every call: they are for looking at a timeline, not for a verdict"
            )
    return found


def _count(runs: pd.DataFrame, setting: str) -> int:
    return sum(setting in dict(settings or {}) for settings in runs["settings"])


def _share(runs: pd.DataFrame, setting: str) -> float:
    return _count(runs, setting) / len(runs) if len(runs) else 0.0
