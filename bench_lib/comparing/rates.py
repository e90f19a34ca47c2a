"""TFLOP/s and the share of the device's peak, derived when read from a case's FLOP and its time."""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

import pandas as pd

from bench_lib.comparing.replicates import SECONDS, params_of, replicates
from bench_lib.comparing.store import Data

_Peak = TypeVar("_Peak")

# Dense peaks in TFLOP/s from NVIDIA's data sheets: fp32, TF32, fp16 or bf16. The first name that
# the GPU's own begins with, "NVIDIA " left out, is taken.
_PEAKS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "H200": (67.0, 494.7, 989.4),
        "H100 PCIe": (51.2, 378.0, 756.0),
        "H100": (67.0, 494.7, 989.4),
        "A100": (19.5, 156.0, 312.0),
        "L40S": (91.6, 183.0, 362.0),
        "L4": (30.3, 60.0, 121.0),
        "Tesla V100": (15.7, math.nan, 125.0),
        "Tesla T4": (8.1, math.nan, 65.0),
    }
)

# Peaks of the device's memory in GB/s, from the same data sheets.
_BANDWIDTHS: Mapping[str, float] = MappingProxyType(
    {
        "H200": 4800.0,
        "H100 PCIe": 2000.0,
        "H100 NVL": 3900.0,
        "H100": 3350.0,
        "A100-SXM4-80GB": 2039.0,
        "A100 80GB PCIe": 1935.0,
        "A100": 1555.0,
        "L40S": 864.0,
        "L4": 300.0,
        "Tesla V100": 900.0,
        "Tesla T4": 320.0,
    }
)


# NVLink's GB/s in one direction, alike; they give the sum of both.
_LINKS: Mapping[str, float] = MappingProxyType(
    {
        "B200": 900.0,
        "H200": 450.0,
        "H100 PCIe": 300.0,
        "H100 NVL": 300.0,
        "H100": 450.0,
        "A100": 300.0,
        "Tesla V100-SXM2": 150.0,
    }
)


def peak_link(gpu_name: str) -> float:
    """The peak of NVLink in GB/s, in one direction; NaN where it is not known."""
    return _named(gpu_name, _LINKS) or math.nan


def peak_bandwidth(gpu_name: str) -> float:
    """The peak of the device's memory in GB/s; NaN where it is not known."""
    return _named(gpu_name, _BANDWIDTHS) or math.nan


def _named(gpu_name: str, known: Mapping[str, _Peak]) -> _Peak | None:
    """What is known of the first name that this GPU's own begins with: L4 is no L40."""
    name = gpu_name.removeprefix("NVIDIA ")
    return next((peak for one, peak in known.items() if re.match(rf"{one}\b", name)), None)


def peak_teraflops(gpu_name: str, precision: str) -> float:
    """The device's dense peak for a precision of `bench_lib.convolution.precision`; NaN if not known."""
    peaks = _named(gpu_name, _PEAKS)
    if peaks is None:
        return math.nan
    kind = {"fp32": 0, "tf32": 1}.get(precision, 2 if precision.startswith(("fp16", "bf16")) else None)
    return math.nan if kind is None else peaks[kind]


def rates(data: Data) -> pd.DataFrame:
    """A row a case that counts FLOP: its params, seconds (median over runs), `teraflops`, `share`.

    `share` is of the peak of the case's precision, NaN where that is not known.
    """
    values = replicates(data).values
    counted = data.cases.loc[data.cases["flop"].fillna(0) > 0, ["run_id", "case_id", "flop"]]
    times = values[values["unit"] == SECONDS].merge(counted, on=["run_id", "case_id"])
    keys = ["case_id", "family", "op", "params", "gpu_name"]
    found = times.groupby(keys, as_index=False).agg(seconds=("value", "median"), flop=("flop", "first"))
    found["precision"] = [str(params_of(text).get("precision", "")) for text in found["params"]]
    found["teraflops"] = found["flop"] / found["seconds"] / 1e12
    peaks = [peak_teraflops(*row) for row in found[["gpu_name", "precision"]].itertuples(index=False)]
    found["share"] = found["teraflops"] / pd.Series(peaks, index=found.index, dtype=float)
    return found
