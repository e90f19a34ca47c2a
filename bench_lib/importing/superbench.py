"""SuperBench's results-summary.jsonl: a line a node, each a run; a case a metric, its unit from the docs.

Names are BENCHMARK[:ANNOTATION]/METRIC[:RANK]. A rate is kept as the seconds that a unit of work takes. A
metric whose unit is not known here is left out, and counted. Source of the units: SuperBench, "Micro
Benchmarks" and "Model Benchmarks".
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench_lib.importing.documents import Node
from bench_lib.importing.found import FoundCase, FoundRun, Source, trouble
from bench_lib.model import Scalar, Status

FAMILY, MARGIN = "superbench", 0.05
_NAMES_SHOWN = 3
_RETURN_CODE = "return_code"


class _Unit(NamedTuple):
    """What a metric counts: seconds a unit, or the work of a unit a second."""

    benchmark: str  # patterns, matched whole
    metric: str
    seconds: float = 0.0  # of a time; 0: a rate
    nbytes: float | None = None  # of a unit of a rate
    flop: float | None = None


_US, _MS = 1e-6, 1e-3
_UNITS = (  # the first that fits
    _Unit(r"kernel-launch", r"(event|wall)_(time|overhead)", _MS),
    _Unit(r"kernel-launch", r"\w+_us", _US),
    _Unit(r"kernel-launch", r"launch_throughput_mkps"),
    _Unit(r"(nccl|rccl)-bw", r"[\w:]+_time", _US),
    _Unit(r"(nccl|rccl)-bw", r"[\w:]+_(alg|bus)bw", nbytes=1e9),
    _Unit(r"(cublas|cudnn)-function", r".*_time", _US),
    _Unit(r"(tensorrt|ort)-inference", r"\w+_time(_[\w.]+)?", _MS),
    _Unit(r"pytorch-(sharding-)?matmul|pytorch-computation-communication-overlap", r"\w+_time", _MS),
    _Unit(r"gemm-flops", r"\w+_flops|(FP|BF|TF)\w+", flop=1e9),
    _Unit(r"(cublaslt|hipblaslt)-gemm", r"\w+_flops", flop=1e12),
    _Unit(r"cpu-memory-bw-latency", r"\w+_bw", nbytes=1e6),
    _Unit(r"cpu-memory-bw-latency", r"\w+_lat", 1e-9),
    _Unit(r"cpu-stream", r"\w+_throughput", nbytes=1e6),
    _Unit(r"cpu-stream", r"\w+_time_\w+", 1.0),
    _Unit(r"nvbandwidth", r"(?!\w+_sum_bw)\w+_bw", nbytes=1e9),  # a sum hides its links
    _Unit(r"(mem|gpu-copy|gpu-sm-copy)-bw|gpu-stream|ib-loopback", r"\w+_bw(_\d+)?", nbytes=1e9),
    _Unit(r"gpu-stream", r"\w+_time(_\w+)?", 1.0),
    _Unit(r".*", r"(\w+_)?step_?times?(_[\w.]+)?", _MS),
    _Unit(r".*", r"(\w+_)?throughput_(train|inference)\w*|\w+_(train|inference)_throughput(_[\w.]+)?"),
)


def recognised(source: Source) -> bool:
    """Whether its first line is a node of SuperBench."""
    first = next((line for line in source.text.splitlines() if line.strip()), "")
    try:
        value = json.loads(first)
    except ValueError:
        return False
    return isinstance(value, dict) and "node" in value


def read(source: Source) -> list[FoundRun]:
    """A run a node. Raises DataError, naming the line, where a line is none."""
    return [_run(node) for node in _nodes(source)]


def _nodes(source: Source) -> Iterator[Node]:
    for number, line in enumerate(source.text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise source.malformed(f"is no JSON ({error})", number) from None
        in_its_place = Source(
            source.path, b"\n" * (number - 1) + line.encode()
        )  # so that errors name the line
        yield Node(in_its_place, value)


def _run(node: Node) -> FoundRun:
    host, found, left = node.text("node"), [], []
    for name in node.value:
        if name == "node" or not node.has(name):
            continue
        case = _case(name, node.number(name), node.value)
        found += [case] if case is not None else []
        left += [name] if case is None and not _is_told(name, node.value) else []
    metrics = f"{len(left)} metric{'s' * (len(left) > 1)} of unknown unit or without a value"
    note = f"{host}: {metrics} left out ({', '.join(left[:_NAMES_SHOWN])}, ...)"
    return FoundRun(FAMILY, "superbench", tuple(found), MARGIN, host=host, notes=(note,) if left else ())


def _is_told(name: str, values: Mapping[str, object]) -> bool:
    """Whether another metric says it: a bandwidth beside its time, a return code of 0."""
    whole = re.sub(r"_(alg|bus)bw(:\d+)?$", r"_time\2", name)
    return (whole != name and values.get(whole) is not None) or f"/{_RETURN_CODE}" in name


def _case(name: str, value: float, values: Mapping[str, object]) -> FoundCase | None:
    """The case of a metric; None where it has no unit, no positive value, or another metric says it."""
    *way, metric = name.split("/")
    if not way:
        return None
    metric, rank = found.groups() if (found := re.fullmatch(r"(.*):(\d+)", metric)) else (metric, None)
    op, _, annotation = way[0].partition(":")
    told = {"annotation": annotation, "model": "/".join(way[1:]), "metric": metric}
    params: dict[str, Scalar] = {key: text for key, text in told.items() if text}
    params |= {} if rank is None else {"rank": int(rank)}
    if metric == _RETURN_CODE:
        reason = f"its return code is {value:g}"
        return FoundCase(op, params, FAMILY, status=Status.FAILED, reason=reason) if value else None
    unit = next((u for u in _UNITS if re.fullmatch(u.benchmark, op) and re.fullmatch(u.metric, metric)), None)
    if unit is None or _is_told(name, values) or not value > 0:
        return None
    seconds = value * unit.seconds if unit.seconds else 1 / value
    if trouble(seconds):
        return None
    return FoundCase(op, params, FAMILY, (seconds,), nbytes=unit.nbytes, flop=unit.flop)
