"""What a comparison says of runs that were measured for a profiler, or with another benchmark file."""

from collections.abc import Collection, Iterable

import pandas as pd

from bench_lib.observing.settings import CODE, NVTX, PROFILER
from bench_lib.units import names_text

_FAMILIES_SHOWN = 3


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


def on_code(sides: Iterable[pd.DataFrame], families: Collection[str] | None = None) -> list[str]:
    """A sentence where the runs of all sides have several digests of a benchmark file; of `families` or all.

    Runs from before digests were stored say nothing of it.
    """
    found: dict[str, set[str]] = {}
    for settings in (one for runs in sides for one in runs["settings"]):
        for key, value in dict(settings or {}).items():
            if key.startswith(CODE):
                found.setdefault(key.removeprefix(CODE), set()).add(value)
    several = sorted(family for family, digests in found.items() if len(digests) > 1)
    if named := [family for family in several if families is None or family in families]:
        return [
            f"the benchmark file of {names_text(named, _FAMILIES_SHOWN)} differs between the runs: what is "
            "compared is partly the code that measures"
        ]
    return []


def _count(runs: pd.DataFrame, setting: str) -> int:
    return sum(setting in dict(settings or {}) for settings in runs["settings"])


def _share(runs: pd.DataFrame, setting: str) -> float:
    return _count(runs, setting) / len(runs) if len(runs) else 0.0
