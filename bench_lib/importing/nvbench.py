"""The JSON of nvbench (options --json and --jsonbin): a case a state and kind of time.

With --jsonbin the samples lie in files beside it, and are taken; without, the mean is all there is. The
median of samples is another method than a mean of them, so the two are never compared.
"""

import math
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench_lib.importing.documents import Node
from bench_lib.importing.found import FoundCase, FoundRun, Source, names, trouble
from bench_lib.model import Scalar, Status

FAMILY, MARGIN = "nvbench", 0.02
_SAMPLES = "nv/json/bin:nv/cold/sample_times"
_RATE = "nv/cold/bw/global/bytes_per_second"
_SETTINGS = (  # of a benchmark, as far as its version of nvbench writes them
    *("min_samples", "min_time", "max_noise", "timeout"),
    *("cold_warmup_runs", "cold_max_warmup_walltime", "batch_target_time"),
)
_ASKED = frozenset(  # on the command line, and not among the settings of every version
    {
        *("--stopping-criterion", "--min-time", "--max-noise", "--max-angle", "--min-r2", "--target-samples"),
        *("--throttle-threshold", "--throttle-recovery-delay", "--lock-gpu-clocks", "--lgc"),
    }
)


_Summaries = dict[str, dict[str, Node]]  # by tag and name


class _Mean(NamedTuple):
    """A time that nvbench sums up: its tag, our metric, and the name of the method."""

    tag: str
    metric: str
    timing: str


_MEANS = (
    _Mean("nv/cold/time/gpu/mean", "gpu", "nvbench cold mean"),
    _Mean("nv/cold/time/cpu/mean", "cpu", "nvbench cold mean"),
    _Mean("nv/batch/time/gpu/mean", "batch", "nvbench batch mean"),
    _Mean("nv/cpu_only/time/cpu/mean", "cpu", "nvbench cpu mean"),
)


def recognised(source: Source) -> bool:
    """Whether it is a document with nvbench's devices, benchmarks and states."""
    value = source.document
    return (
        isinstance(value, dict) and {"devices", "benchmarks"} <= value.keys() and "machine_info" not in value
    )


def read(source: Source) -> list[FoundRun]:
    """The one run of the file. Raises DataError, naming the line, where it is not what it should be."""
    root = Node(source, source.document)
    devices = {one.text("id"): one.text("name") for one in root.items("devices")}
    benchmarks = list(root.items("benchmarks"))
    found = [
        case for one in benchmarks for state in one.items("states") for case in _cases(one, state, devices)
    ]
    return [
        FoundRun(
            FAMILY,
            " ".join(filter(None, [names([_policy(one) for one in benchmarks]), _asked(root)])),
            tuple(found),
            MARGIN,
            gpu_name=names(list(devices.values())),
            machine={"nvbench.version": _version(root)},
        )
    ]


def _version(root: Node) -> str:
    for key in ("meta", "version", "nvbench"):
        if not root.has(key):
            return "unknown"
        root = root.child(key)
    return root.text("string", "unknown")


def _policy(benchmark: Node) -> str:
    return " ".join(f"{name}={benchmark.text(name)}" for name in _SETTINGS if benchmark.has(name))


def _asked(root: Node) -> str:
    """Options of the command line that decide when nvbench stops, or at which clock it measures."""
    if not root.has("meta"):
        return ""
    words = [str(one.value) for one in root.child("meta").items("argv")]
    return " ".join(f"{option.lstrip('-')}={value}" for option, value in pairwise(words) if option in _ASKED)


def _cases(benchmark: Node, state: Node, devices: dict[str, str]) -> Iterator[FoundCase]:
    op, params = benchmark.text("name"), _params(state, devices)
    if state.has("is_skipped") and state.child("is_skipped").value is True:
        reason = state.text("skip_reason", "nvbench skipped it")
        yield FoundCase(
            op, {**params, "metric": "gpu"}, "nvbench cold mean", status=Status.SKIPPED, reason=reason
        )
        return
    summaries = {one.text("tag"): _data(one) for one in state.items("summaries")}
    samples = _samples(state, summaries)
    for tag, metric, timing in _MEANS:
        if tag not in summaries:
            continue
        mean = summaries[tag]["value"].number("value") if "value" in summaries[tag] else math.nan
        seconds: tuple[float, ...] = (mean,)
        if metric == "gpu" and samples:
            seconds, timing = samples, "nvbench cold samples"
        reason = next(filter(None, map(trouble, seconds)), "")
        yield FoundCase(
            op,
            {**params, "metric": metric},
            timing,
            () if reason else seconds,
            Status.FAILED if reason else Status.OK,
            reason,
            nbytes=_nbytes(summaries, mean) if metric == "gpu" else None,
        )


def _params(state: Node, devices: dict[str, str]) -> dict[str, Scalar]:
    params: dict[str, Scalar] = {}
    for axis in state.items("axis_values"):
        read = {"int64": axis.integer, "float64": axis.number}.get(axis.text("type", "string"), axis.text)
        params[axis.text("name")] = read("value")
    return {**params, "device": state.text("device", "")} if len(devices) > 1 else params


def _data(summary: Node) -> dict[str, Node]:
    """The values of a summary by name, each an object with its own `value`."""
    return {one.text("name"): one for one in summary.items("data")}


def _nbytes(summaries: _Summaries, mean: float) -> float | None:
    rate = summaries.get(_RATE, {}).get("value")
    if rate is None or trouble(mean) or trouble(rate.number("value")):
        return None
    return float(round(rate.number("value") * mean))


def _samples(state: Node, summaries: _Summaries) -> tuple[float, ...]:
    """The samples of the file beside the JSON; none where there is no such file."""
    told = summaries.get(_SAMPLES)
    if told is None or not {"filename", "size"} <= told.keys():
        return ()
    name, beside = Path(told["filename"].text("value")), state.source.path.parent
    places = [name, beside / name, beside.parent / name, beside / name.parent.name / name.name]
    path = next((one for one in places if one.is_file()), None)
    if path is None:
        return ()
    data, promised = path.read_bytes(), told["size"].integer("value")
    if len(data) != 4 * promised:
        raise state.malformed(f"promises {promised} samples in {path}, which holds {len(data) // 4}")
    return struct.unpack(f"<{len(data) // 4}f", data)
