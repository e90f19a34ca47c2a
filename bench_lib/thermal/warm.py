"""Runs of a comparison that began although their GPU had not cooled down in time."""

import math

import pandas as pd


def notes(label: str, runs: pd.DataFrame) -> list[str]:
    """A sentence for the runs of one side whose --cool-down ran out, none where there is no such run."""
    above = [
        (values.get("cool_down_to_c") or 0.0) - (values.get("cool_down_limit_c") or math.inf)
        for values in runs["quantities"]
    ]
    late = [celsius for celsius in above if celsius > 0]
    if not late:
        return []
    how = f"up to {max(late):g} °C above the band of --cool-down: the wait ran out"
    return [f"{label}: {len(late)} of {len(runs)} runs began {how}"]
