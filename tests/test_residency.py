"""Present bits of this machine's own /proc/self/pagemap, with plain memory."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from bench_lib.memory import residency
from bench_lib.memory.residency import PAGE_NBYTES, n_pages, present_pages

PAGES = 64


@pytest.fixture
def memory():
    """A mapping of PAGES pages that nothing has touched, as words; small pages only."""
    mapping = mmap.mmap(-1, PAGES * PAGE_NBYTES)
    mapping.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(mapping, dtype=np.uint32)


@pytest.fixture
def shown():
    if not residency.shown():
        pytest.skip("this kernel does not show present bits")


def present(memory: np.ndarray) -> int | None:
    return present_pages(memory.ctypes.data, memory.nbytes)


def test_pages_are_present_once_they_are_touched_and_gone_when_dropped(shown, memory):
    assert present(memory) == 0
    memory[:: 4 * PAGE_NBYTES // memory.itemsize] = 1  # every fourth page
    assert present(memory) == PAGES // 4
    memory[:: PAGE_NBYTES // memory.itemsize] = 1
    assert present(memory) == PAGES
    memory.base.obj.madvise(mmap.MADV_DONTNEED)
    assert present(memory) == 0


def test_only_the_pages_of_the_range_count(shown, memory):
    memory[0] = 1
    start = memory.ctypes.data
    assert present_pages(start, 1) == 1
    assert present_pages(start + PAGE_NBYTES - 1, 2) == 1
    assert present_pages(start + PAGE_NBYTES, PAGE_NBYTES) == 0


@pytest.mark.parametrize(
    ("address", "nbytes", "pages"),
    [(0, 1, 1), (0, PAGE_NBYTES, 1), (0, PAGE_NBYTES + 1, 2), (PAGE_NBYTES - 1, 2, 2)],
)
def test_pages_of_a_range(address, nbytes, pages):
    assert n_pages(address, nbytes) == pages


def test_a_pagemap_that_cannot_be_read_says_nothing(tmp_path, memory):
    assert present_pages(memory.ctypes.data, memory.nbytes, tmp_path / "missing") is None


def test_a_pagemap_that_shows_nothing_is_not_believed(memory):
    """Some sandboxes show zeros for every page, for one that was just touched too."""
    memory[0] = 1
    zeros = Path("/dev/zero")
    assert not residency.shown(zeros)
    assert present_pages(memory.ctypes.data, memory.nbytes, zeros) is None
