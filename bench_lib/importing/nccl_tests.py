"""Rows of nccl-tests as cases: the same for its table and its JSON.

A row is the mean of some iterations. Iterations timed one by one (option -I) are a case of their own,
for they are timed by CUDA events and not by the host.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_lib.busbw import factor
from bench_lib.importing.found import FoundCase, trouble
from bench_lib.model import Scalar, Status

FAMILY, MARGIN = "nccl-tests", 0.05
PLACES = {"out_of_place": "out", "in_place": "in"}
AVERAGED = {"0": "rank0", "1": "average", "2": "min", "3": "max"}  # option -a: over ranks
UNSTATED = "unstated"
_DTYPES = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64"}
_EXACT_ENOUGH = 1.0  # GB/s, which are printed with two decimals
_ROUNDING = 0.02  # GB/s, of both bandwidths together


@dataclass(frozen=True)
class Settings:
    """What of nccl-tests' options decides a number."""

    iterations: int
    warmup: int
    aggregated: int = 1
    graph: int = 0
    blocking: str = "0"
    ranks: str = UNSTATED  # a value of AVERAGED

    @property
    def policy(self) -> str:
        """The options in one text; files with other ones are never compared."""
        known = {
            "iters": self.iterations,
            "warmup": self.warmup,
            "agg": self.aggregated,
            "graph": self.graph,
            "blocking": self.blocking,
            "ranks": self.ranks,
        }
        return ",".join(f"{name}={value}" for name, value in known.items())

    @property
    def calls(self) -> int:
        """The operations that one printed time is the mean of."""
        return self.iterations * self.aggregated * max(self.graph, 1)


@dataclass(frozen=True)
class Row:
    """One half of a row: a size, in or out of place."""

    nbytes: int
    dtype: str
    redop: str
    root: int  # -1: the operation has none
    place: str
    seconds: float
    algbw: float  # GB/s, as all bandwidths here
    busbw: float
    wrong: int | None  # elements; None: not checked
    metric: str = "time"  # or cputime (option -C)
    iterations: tuple[float, ...] = ()  # seconds of each, where they were timed one by one
    quantities: Mapping[str, float] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, Scalar]:
        """The parameters of its case."""
        found: dict[str, Scalar] = {
            "nbytes": self.nbytes,
            "dtype": _DTYPES.get(self.dtype, self.dtype),
            "place": self.place,
            "metric": self.metric,
        }
        if self.redop != "none":
            found["redop"] = self.redop
        return {**found, "root": self.root} if self.root >= 0 else found


def op_of(command: str) -> str:
    """The operation in a program's name or a command line: `all_reduce`; "" where none is named."""
    found = re.search(r"(\w+)_perf", command)
    return found[1] if found else ""


def averaged(arguments: str) -> str:
    """What option -a of a command line says about averaging over ranks; average, its default, if nothing."""
    found = re.search(r"(?:\s-a|\s--average)[\s=]*([0-3])\b", arguments)
    return AVERAGED[found[1] if found else "1"]


def disagreement(op: str, ranks: int, rows: Sequence[Row]) -> str:
    """In words, how busbw contradicts the operation or the number of ranks; "" when it does not."""
    largest = max(rows, key=lambda row: row.algbw, default=None)
    expected = factor(op, ranks) or 0.0
    if largest is None or not largest.algbw >= _EXACT_ENOUGH or op == "hypercube":
        return ""
    found = largest.busbw / largest.algbw
    if math.isclose(found, expected, rel_tol=0.002, abs_tol=_ROUNDING / largest.algbw):
        return ""
    return (
        f"at {largest.nbytes} bytes busbw is {found:.3g} times algbw, {op} over {ranks} "
        f"rank{'s' * (ranks > 1)} gives {expected:.3g}: the header is not of this table"
    )


def cases(op: str, ranks: int, settings: Settings, rows: Sequence[Row]) -> tuple[FoundCase, ...]:
    """The cases of a table; a case measured in several cycles (option -N) has as many samples."""
    grouped: dict[tuple[tuple[str, Scalar], ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row.params.items()), []).append(row)
    found = []
    for own in grouped.values():
        found.append(_case(op, ranks, settings, own))
        if any(row.iterations for row in own):
            found.append(_iterations(found[-1], own))
    return tuple(found)


def _case(op: str, ranks: int, settings: Settings, rows: Sequence[Row]) -> FoundCase:
    wrong = sum(row.wrong or 0 for row in rows)
    troubles = [text for row in rows if (text := trouble(row.seconds))]
    status, reason = Status.OK, ""
    if wrong:
        status = Status.WRONG_RESULT
        reason = f"nccl-tests counted {wrong} wrong element{'s' * (wrong > 1)}"
    elif troubles:
        status, reason = Status.FAILED, troubles[0]
    first = rows[0]
    return FoundCase(
        op,
        {**first.params, "ranks": ranks},
        "nccl-tests",
        tuple(row.seconds for row in rows) if status is Status.OK else (),
        status,
        reason,
        calls=settings.calls,
        world_size=ranks,
        nbytes=first.nbytes,
        warmup_calls=settings.warmup,
        quantities=first.quantities,
        facts={"checked": "no" if first.wrong is None else "yes"},
    )


def _iterations(whole: FoundCase, rows: Sequence[Row]) -> FoundCase:
    """The iterations of a case one by one."""
    seconds = tuple(one for row in rows for one in row.iterations)
    troubles = [text for one in seconds if (text := trouble(one))]
    status, reason = whole.status, whole.reason
    if troubles and status is Status.OK:
        status, reason = Status.FAILED, f"of one iteration, {troubles[0]}"
    return FoundCase(
        whole.op,
        {**whole.params, "metric": "iteration"},
        "nccl-tests events",
        seconds if status is Status.OK else (),
        status,
        reason,
        world_size=whole.world_size,
        nbytes=whole.nbytes,
        warmup_calls=whole.warmup_calls,
        facts=whole.facts,
    )
