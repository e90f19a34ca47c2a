"""Units that claims may ask for and no case stores: shares of what the device or its links can do at most."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from bench_lib.busbw import busbw
from bench_lib.comparing.rates import peak_bandwidth, peak_link, peak_teraflops
from bench_lib.comparing.replicates import SECONDS, params_of
from bench_lib.comparing.store import Data


def values(unit: str, data: Data, known: pd.DataFrame) -> pd.DataFrame:
    """The rows of `known` (see `Replicates.values`) of a unit, derived from times where it is derived."""
    if unit not in DERIVED:
        return known[known["unit"] == unit]
    column, share = DERIVED[unit]
    counted = data.cases.loc[data.cases[column].fillna(0) > 0, ["run_id", "case_id", column]]
    times = known[known["unit"] == SECONDS].merge(counted, on=["run_id", "case_id"])
    found = [share(row) for row in times.to_dict("records")]
    return times.assign(unit=unit, value=pd.Series(found, index=times.index, dtype=float), step=np.nan)


def _of_peak(row: Mapping[Any, Any]) -> float:
    """FLOP/s over the dense peak of the case's precision; NaN where that is not known."""
    precision = str(params_of(str(row["params"])).get("precision", ""))
    return (
        _number(row["flop"]) / _number(row["value"]) / 1e12 / peak_teraflops(str(row["gpu_name"]), precision)
    )


def _of_memory(row: Mapping[Any, Any]) -> float:
    """Bytes a second over the peak of the device's memory; NaN where that is not known."""
    return _number(row["nbytes"]) / _number(row["value"]) / 1e9 / peak_bandwidth(str(row["gpu_name"]))


def _of_link(row: Mapping[Any, Any]) -> float:
    """Bus bandwidth over NVLink's in one direction; NaN where the GPU's is not known."""
    ranks = int(_number(row["world_size"]))
    found = busbw(str(row["op"]), _number(row["nbytes"]), _number(row["value"]), ranks)
    return np.nan if found is None else found / 1e9 / peak_link(str(row["gpu_name"]))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else np.nan


# unit -> the column of cases that it needs, and how it comes from a row of times
DERIVED: Mapping[str, tuple[str, Callable[[Mapping[Any, Any]], float]]] = MappingProxyType(
    {
        "peak_share": ("flop", _of_peak),
        "memory_share": ("nbytes", _of_memory),
        "link_share": ("nbytes", _of_link),
    }
)
