"""Tests that need a real CUDA GPU; without one they are skipped."""

import pytest

from bench_lib.device.gpu import detect


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(__file__.rpartition("/")[0])]
    for item in here:  # what the torch at hand warns of is its own affair
        item.add_marker(pytest.mark.filterwarnings("default"))
    found = detect() if here else None
    if found is not None and not found.available:
        for item in here:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {found.reason}"))
