"""What connects the ranks: a class for the case's key, and the topology in words, from NVML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from bench_lib.device.telemetry import load_nvml
from bench_lib.ranks.member import Facts

NONE, NVLINK, PCIE, NETWORK, HOST, UNKNOWN = "none", "nvlink", "pcie", "network", "host", "unknown"
_WORST_FIRST = (UNKNOWN, PCIE, NVLINK)

# nvml.h, nvmlGpuTopologyLevel_t, in the words of `nvidia-smi topo -m`.
_LEVELS = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_MOST_LINKS = 18


@dataclass(frozen=True)
class Links:
    """Asks a rank how the GPUs of its host are connected: boot id -> the UUIDs there."""

    uuids: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Link:
    """How two GPUs of one host are connected: the class, and NVML's words."""

    pair: tuple[str, str]
    kind: str
    text: str


def links(uuids: Sequence[str], nvml: Any = None) -> list[Link]:
    """Every pair of GPUs of this host; UNKNOWN where NVML does not say."""
    found = nvml if nvml is not None else load_nvml()
    return [Link(pair, *_between(found, *pair)) for pair in combinations(uuids, 2)]


def _between(nvml: Any, one: str, other: str) -> tuple[str, str]:
    if nvml is None:
        return UNKNOWN, "no NVML"
    try:
        nvml.nvmlInit()
        a, b = nvml.nvmlDeviceGetHandleByUUID(one), nvml.nvmlDeviceGetHandleByUUID(other)
        if nvml.nvmlDeviceGetP2PStatus(a, b, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK:
            return NVLINK, f"NV{_active_links(nvml, a)}"
        level = int(nvml.nvmlDeviceGetTopologyCommonAncestor(a, b))
        return PCIE, _LEVELS.get(level, str(level))
    except (nvml.NVMLError, AttributeError, OSError) as error:
        return UNKNOWN, str(error)


def _active_links(nvml: Any, handle: Any) -> int:
    """NVLinks of a GPU that are up; a link that is not there raises."""
    up = 0
    for link in range(_MOST_LINKS):
        try:
            up += nvml.nvmlDeviceGetNvLinkState(handle, link) == 1
        except nvml.NVMLError:
            break
    return up


def by_host(facts: Sequence[Facts]) -> dict[str, tuple[str, ...]]:
    """Boot id -> the UUIDs of its ranks, in their order."""
    found: dict[str, tuple[str, ...]] = {}
    for fact in (fact for fact in facts if fact.uuid):
        found[fact.boot_id] = (*found.get(fact.boot_id, ()), fact.uuid)
    return found


def kind(facts: Sequence[Facts], found: Sequence[Link]) -> str:
    """The class of a world: of its worst pair; NETWORK over several hosts, HOST on the CPU."""
    if len(facts) == 1:
        return NONE
    if len({fact.boot_id for fact in facts}) > 1 or len({fact.host for fact in facts}) > 1:
        return NETWORK
    if not facts[0].uuid:
        return HOST
    kinds = {link.kind for link in found}
    return next((one for one in _WORST_FIRST if one in kinds), UNKNOWN)


def topology(facts: Sequence[Facts], found: Sequence[Link]) -> str:
    """`2 ranks on 1 host; 0-1 NV18`: how many ranks where, and each pair of GPUs by rank."""
    hosts = len({(fact.boot_id, fact.host) for fact in facts})
    rank_of = {fact.uuid: fact.rank for fact in facts}
    pairs = [f"{rank_of[link.pair[0]]}-{rank_of[link.pair[1]]} {link.text}" for link in found]
    ranks = f"{len(facts)} rank{'s' * (len(facts) > 1)} on {hosts} host{'s' * (hosts > 1)}"
    return "; ".join([ranks, *pairs])
