"""How a machine moves managed memory: attributes and kernel settings in; a mode and facts out.

Numbers of different modes are never compared: where the GPU walks the host's page tables (ATS, over
a coherent link) nothing faults in the sense of the others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from bench_lib.errors import Unavailable

# CUdevice_attribute of cuda.h, in words.
ATTRIBUTES: Mapping[str, int] = {
    "managed_memory": 83,
    "pageable_memory_access": 88,
    "concurrent_managed_access": 89,
    "pageable_memory_access_uses_host_page_tables": 100,
    "direct_managed_memory_access_from_host": 101,
    "host_numa_id": 134,
}
_HMM = Path("sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
_NODES = Path("sys/devices/system/node/online")


class HasAttributes(Protocol):
    """What is needed of a driver.Context."""

    def attribute(self, number: int) -> int:
        """One CUdevice_attribute."""
        ...


def attributes(context: HasAttributes) -> dict[str, int]:
    """The device attributes that decide about managed memory, by name."""
    return {name: context.attribute(number) for name, number in ATTRIBUTES.items()}


def mode(found: Mapping[str, int]) -> str:
    """`ats`, `hmm`, `uvm` (managed memory alone moves by faults) or `none` (nothing does)."""
    if not found["concurrent_managed_access"]:
        return "none"
    if found["pageable_memory_access_uses_host_page_tables"]:
        return "ats"
    return "hmm" if found["pageable_memory_access"] else "uvm"


def need_faults(found: Mapping[str, int]) -> None:
    """Raise Unavailable where CPU and GPU cannot both touch managed memory (WSL2, some vGPUs)."""
    if not found["concurrent_managed_access"]:
        raise Unavailable(
            "the device attribute concurrentManagedAccess is 0: managed memory does not move by page "
            "faults here, and prefetch is refused"
        )


def facts(found: Mapping[str, int], root: Path = Path("/")) -> dict[str, str]:
    """The attributes, HMM, page size and NUMA as facts of a case; `root` is where /sys lies."""
    return {
        **{f"memory.{name}": str(value) for name, value in found.items()},
        "memory.hmm_disabled": _read(root / _HMM),
        "memory.page_nbytes": str(os.sysconf("SC_PAGE_SIZE")),
        "memory.numa_nodes": _read(root / _NODES),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"
