"""Two drivers that alternated on one machine: each installation becomes one value, neighbours a pair.

Drivers cannot share a round. What an installation brings with it (a boot, a day, a room's warmth) is
the same for all its runs, so its runs are no replicates: the installations are.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench_lib.comparing.pairing import CASE
from bench_lib.comparing.replicates import SAME, Replicates

FEWEST_ALTERNATIONS = 3  # installations of each driver, in turns, before they count as replicates


@dataclass(frozen=True)
class Alternations:
    """The installations of two drivers in order of time."""

    pairs: dict[str, str]  # run -> the pair of installations it belongs to
    installations: int
    alone: tuple[str, ...]  # runs whose installation has no neighbour to pair with

    @property
    def note(self) -> str:
        """What a comparison says about them."""
        n = len(set(self.pairs.values()))
        return (
            f"the drivers alternated: {self.installations} installations, each one value (the mean over its "
            f"runs), neighbours a pair, so n counts {n} pairs of installations; the two of a pair always "
            "came in the same order, so a steady drift of the machine would look like an effect"
        )


def drivers_differ(baseline: pd.DataFrame, candidate: pd.DataFrame) -> bool:
    """Whether each side ran on one driver version, and these are different ones."""
    a, b = (
        {str(identity.get("driver.version", "")) for identity in runs["driver_identity"]}
        for runs in (baseline, candidate)
    )
    return len(a) == len(b) == 1 and a != b and "" not in a | b


def alternations(baseline: pd.DataFrame, candidate: pd.DataFrame) -> Alternations | None:
    """How two drivers alternated; None unless some machine saw each of them three times in turns.

    All runs of one driver without the other one in between are one installation, over reboots too.
    """
    if not drivers_differ(baseline, candidate):
        return None
    runs = pd.concat([baseline.assign(side=0), candidate.assign(side=1)]).sort_values("started_at")
    machine = runs["gpu_uuid"].where(runs["gpu_uuid"] != "", runs["host"])
    pairs: dict[str, str] = {}
    installations = 0
    for name, own in runs.groupby(machine):
        number = (own["side"] != own["side"].shift()).cumsum()
        paired = int(number.max()) // 2 * 2
        if paired < 2 * FEWEST_ALTERNATIONS:
            continue
        installations += paired
        first = (number - 1) // 2 * 2 + 1
        pairs |= {
            run: f"installations {i} and {i + 1} on {name}"
            for run, i, at in zip(own["run_id"], first, number, strict=True)
            if at <= paired
        }
    alone = tuple(run for run in runs["run_id"] if run not in pairs)
    return Alternations(pairs, installations, alone) if pairs else None


def by_installation(found: Replicates, pairs: dict[str, str]) -> Replicates:
    """Replicates with one value an installation: the mean over its runs, of logs where there are logs.

    Their `round` is the pair that the installation belongs to; the boots of a pair differ by nature.
    """
    values = _paired(found.values, pairs)
    keys = [*CASE, *SAME, "round", "gpu_uuid"]
    kept = [name for name in values.columns if name not in {*keys, "value"}]
    merged = values.groupby(keys, dropna=False, sort=False).agg(
        value=("value", _mean), **{name: (name, "first") for name in kept}
    )
    return Replicates(merged.reset_index()[list(values.columns)], _paired(found.rejected, pairs))


def _paired(rows: pd.DataFrame, pairs: dict[str, str]) -> pd.DataFrame:
    rows = rows[rows["run_id"].isin(list(pairs))]
    return rows.assign(round=rows["run_id"].map(pairs), boot_id="").sort_values("started_at")


def _mean(values: "pd.Series[float]") -> float:
    if (values > 0).all():
        return float(np.exp(np.log(values).mean()))
    return float(values.mean())
