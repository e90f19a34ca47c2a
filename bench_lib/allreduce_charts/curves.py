"""AllReduces by message size, measured here or imported from nccl-tests: one curve a stack and way."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from bench_lib.busbw import busbw
from bench_lib.comparing.rates import peak_link
from bench_lib.comparing.replicates import SECONDS, params_of
from bench_lib.comparing.store import Data
from bench_lib.drawing.dotplot import natural
from bench_lib.drawing.family_data import Median, by_stack, medians, of_family
from bench_lib.errors import UsageError

OP = "all_reduce"
FAMILIES, LADDER = ("allreduce", "nccl-tests"), "nccl_ladder"
TORCH, NCCL, GRAPH, NCCL_TESTS = "torch", "NCCL", "NCCL, graph replay", "nccl-tests"
WAYS = (NCCL, NCCL_TESTS, GRAPH, TORCH)  # what a title speaks of first

_OVER = {"nvlink": " over NVLink", "pcie": " over PCIe", "network": " over a network", "host": " of one host"}


class World(NamedTuple):
    """What curves of one picture have in common."""

    ranks: int
    dtype: str
    place: str  # in or out
    interconnect: str  # "" where it is not known

    def __str__(self) -> str:
        over = _OVER.get(self.interconnect, "")
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)}{over}"
        return f"{self.dtype}, {'in' if self.place == 'in' else 'out of'} place, {ranks}"


@dataclass(frozen=True)
class Dot:
    """One size: seconds (the median over runs, and of each run), and what NCCL chose for it."""

    nbytes: float
    seconds: float
    runs: tuple[float, ...]
    choice: str  # Ring/LL128; "" where it is not known

    def gigabytes(self, seconds: float, ranks: int) -> float:
        """The busbw of a time, in GB/s; of one rank NaN."""
        found = busbw(OP, self.nbytes, seconds, ranks)
        return float("nan") if found is None else found / 1e9


@dataclass(frozen=True)
class Curve:
    """The sizes of one stack and way, in order."""

    stack: str
    way: str
    dots: tuple[Dot, ...]

    def choices(self) -> list[tuple[float, str]]:
        """What NCCL chose for the smallest size, and each size from which on it chose otherwise."""
        known = [dot for dot in self.dots if dot.choice]
        changes = [(b.nbytes, b.choice) for a, b in pairwise(known) if a.choice != b.choice]
        return [(dot.nbytes, dot.choice) for dot in known[:1]] + changes


@dataclass(frozen=True)
class Curves:
    """The curves of the world that was measured most, and the world of each of the others."""

    world: World
    curves: tuple[Curve, ...]
    others: tuple[World, ...]
    peak: float | None  # of the link, GB/s; None where it is not known


def by_size(data: Data) -> Curves:
    """Of each stack torch's AllReduce, NCCL's, and nccl-tests'. Raises UsageError where none was measured."""
    found: dict[World, list[Curve]] = {}
    for family in FAMILIES:
        with suppress(UsageError):
            stacks = by_stack(of_family(data, family)).items()
            for stack, own in sorted(stacks, key=lambda one: one[1].runs["started_at"].min()):
                for (world, way), dots in sorted(_dots(own, family).items(), key=lambda one: rank(one[0][1])):
                    found.setdefault(world, []).append(Curve(_named(stack, own), way, dots))
    if not found:
        raise UsageError(
            "no AllReduce was measured; measure the family allreduce, or import results of nccl-tests"
        )
    return _most(found, data)


def by_version(data: Data) -> Curves:
    """Of the ladder a curve a libnccl and launch. Raises UsageError where it was not measured."""
    found: dict[World, list[Curve]] = {}
    for own in by_stack(of_family(data, LADDER)).values():
        for (world, way), dots in sorted(_dots(own, LADDER).items(), key=lambda one: natural(one[0][1])):
            version, _, launch = way.partition("|")
            found.setdefault(world, []).append(Curve(f"NCCL {version}", launch, dots))
    return _most(found, data)


def rank(way: str) -> tuple[int, str]:
    """Sort key of ways: those of WAYS first, in its order."""
    return (WAYS.index(way) if way in WAYS else len(WAYS)), way


def _dots(own: Data, family: str) -> dict[tuple[World, str], tuple[Dot, ...]]:
    choices = _choices(own)
    found: dict[tuple[World, str], list[Dot]] = {}
    for one in medians(own):
        if one.op == OP and one.unit == SECONDS and one.metric == "time" and one.nbytes > 0:
            dot = Dot(one.nbytes, one.value, one.runs, choices.get(_key(one.params), ""))
            found.setdefault((_world(one), _way(one.params, family)), []).append(dot)
    return {key: tuple(sorted(dots, key=lambda dot: dot.nbytes)) for key, dots in found.items()}


def _world(one: Median) -> World:
    params = one.params
    ranks, interconnect = int(params.get("ranks", 1)), str(params.get("interconnect", ""))
    return World(ranks, str(params.get("dtype", "")), str(params.get("place", "")), interconnect)


def _way(params: Mapping[str, Any], family: str) -> str:
    if family == "nccl-tests":
        return NCCL_TESTS
    if params.get("api") == "torch":
        return f"{TORCH}, {params.get('backend')}"
    way = GRAPH if params.get("launch") == "graph" else NCCL
    return f"{params.get('nccl')}|{way}" if family == LADDER else way


def _choices(own: Data) -> dict[str, str]:
    """By case, the algorithm and protocol that most runs name."""
    found: dict[str, Counter[str]] = {}
    for params, facts in own.cases[["params", "facts"]].itertuples(index=False):
        algorithm = facts.get("nccl.algorithm", "") if isinstance(facts, Mapping) else ""
        if algorithm and not algorithm.startswith(("none", "unknown")):
            name = "/".join(filter(None, [algorithm, facts.get("nccl.protocol", "")]))
            found.setdefault(_key(params_of(params)), Counter())[name] += 1
    return {key: names.most_common(1)[0][0] for key, names in found.items()}


def _key(params: Mapping[str, Any]) -> str:
    return str(sorted(params.items()))


def _named(stack: str, own: Data) -> str:
    """The stack with the version of NCCL that its runs loaded."""
    versions = {str(identity.get("nccl.version", "")) for identity in own.runs["stack_identity"]} - {""}
    return f"{stack} (NCCL {versions.pop()})" if len(versions) == 1 else stack


def _most(found: Mapping[World, list[Curve]], data: Data) -> Curves:
    """The world of most ranks, of them fp32 and in place before others; and the peak of its link."""
    if not found:
        raise UsageError("no AllReduce of this family was measured; measure it with --family")

    def weight(world: World) -> tuple[int, bool, bool, int, World]:
        dots = sum(len(curve.dots) for curve in found[world])
        return world.ranks, world.dtype == "fp32", world.place == "in", dots, world

    world = max(found, key=weight)
    others = tuple(other for other in sorted(found) if other != world for _ in found[other])
    return Curves(world, tuple(found[world]), others, _peak(world, set(data.runs["gpu_name"])))


def _peak(world: World, gpus: Iterable[str]) -> float | None:
    names = [name for name in gpus if name]
    peak = peak_link(names[0]) if world.interconnect == "nvlink" and len(names) == 1 else math.nan
    return None if math.isnan(peak) else peak
