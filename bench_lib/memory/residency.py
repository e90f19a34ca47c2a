"""Where pages are, as the kernel tells it: an address range in; how many pages the CPU has, out.

A page of managed memory that moved to the GPU leaves the CPU's page table; the present bit of
/proc/self/pagemap says so (Documentation/admin-guide/mm/pagemap.rst: bit 63 of each page's entry).
"""

from __future__ import annotations

import mmap
import os
from functools import cache
from pathlib import Path

import numpy as np

PAGE_NBYTES = os.sysconf("SC_PAGE_SIZE")
PAGEMAP = Path("/proc/self/pagemap")
_ENTRY_NBYTES = 8
_PRESENT = 63


def n_pages(address: int, nbytes: int) -> int:
    """How many pages the range touches."""
    return (address + nbytes - 1) // PAGE_NBYTES - address // PAGE_NBYTES + 1


def present_pages(address: int, nbytes: int, pagemap: Path = PAGEMAP) -> int | None:
    """How many of the range's pages are in the CPU's page table; None where that is not shown."""
    if not shown(pagemap):
        return None
    entries = _entries(address, nbytes, pagemap)
    return None if entries is None else int((entries >> np.uint64(_PRESENT)).sum())


def _entries(address: int, nbytes: int, pagemap: Path) -> np.ndarray | None:
    wanted = n_pages(address, nbytes) * _ENTRY_NBYTES
    try:
        with pagemap.open("rb", buffering=0) as file:
            file.seek(address // PAGE_NBYTES * _ENTRY_NBYTES)
            data = file.read(wanted)
    except OSError:
        return None
    return np.frombuffer(data, dtype=np.uint64) if len(data) == wanted else None


@cache
def shown(pagemap: Path = PAGEMAP) -> bool:
    """Whether the kernel shows present bits: asked of a page that was touched and one that was not."""
    with mmap.mmap(-1, 2 * PAGE_NBYTES) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory[0] = 1
        view = np.frombuffer(memory, dtype=np.uint8)
        entries = _entries(view.ctypes.data, 2 * PAGE_NBYTES, pagemap)
        del view  # or the mapping cannot be closed
        return entries is not None and [int(entry) >> _PRESENT for entry in entries] == [1, 0]
