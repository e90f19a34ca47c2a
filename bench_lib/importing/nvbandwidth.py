"""The JSON of nvbandwidth (option --json): a case a cell of each matrix, so that no sum hides a link.

A bandwidth is kept as the seconds that 10^9 bytes take; the tool gives one number a cell, no samples. What it
calls "CUDA Runtime Version" is what cuDriverGetVersion answered (nvbandwidth.cpp), so it is the driver's.
"""

import re
from collections.abc import Iterator

from bench_lib.importing.documents import Node
from bench_lib.importing.found import FoundCase, FoundRun, Source, names, trouble
from bench_lib.model import Status
from bench_lib.units import cuda_version_text

FAMILY, MARGIN = "nvbandwidth", 0.02
_GB = 1e9
_ENDS = {"Waived": Status.SKIPPED, "Not Found": Status.SKIPPED, "Passed": Status.OK}  # others failed
_DEVICE = re.compile(r"\d+: (.+?)(?: \([0-9a-fA-F:.]+\))?(?:: \((.*)\))?$")


def recognised(source: Source) -> bool:
    """Whether it is a document of nvbandwidth."""
    value = source.document
    return isinstance(value, dict) and "nvbandwidth" in value


def read(source: Source) -> list[FoundRun]:
    """The one run of the file. Raises DataError, naming the line, where it is not what it should be."""
    root = Node(source, source.document).child("nvbandwidth")
    error = root.text("error", "")
    if error and not root.has("testcases"):
        raise root.child("error").malformed(f"says that the run failed: {error}")
    found, left = [], []
    for testcase in root.items("testcases"):
        cases = list(_cases(testcase))
        found += cases
        left += [] if cases else [testcase.text("name")]
    notes = [f"nvbandwidth ended with an error: {error}"] if error else []
    notes += [f"without a number or a known unit: {names(left)}"] if left else []
    devices = [_DEVICE.match(str(one.value)) for one in root.items("GPU Device list")]
    return [
        FoundRun(
            FAMILY,
            _policy(root),
            tuple(found),
            MARGIN,
            host=root.text("Hostname", names([one[2] or "" for one in devices if one])),
            gpu_name=names([one[1] for one in devices if one]),
            driver=_driver(root),
            complete=not error,
            notes=tuple(notes),
        )
    ]


def _policy(root: Node) -> str:
    """Its version, and whether it says that a buffer smaller than its default was asked for.

    No other option is in the file.
    """
    told = "smaller buffers than its default" if "buffer size" in root.text("warning", "") else ""
    return ", ".join(filter(None, [f"nvbandwidth {root.text('version', 'of unknown version')}", told]))


def _driver(root: Node) -> dict[str, str]:
    """The driver, and the CUDA it brings: the number 12040 is 12.4."""
    found = {"driver.version": root.text("Driver Version")} if root.has("Driver Version") else {}
    if root.has("CUDA Runtime Version"):
        found["driver.cuda"] = cuda_version_text(root.integer("CUDA Runtime Version"))
    return found


def _cases(testcase: Node) -> Iterator[FoundCase]:
    """A case a cell that holds a number; one without a number for a test that did not pass."""
    op, told = testcase.text("name"), testcase.text("status")
    status = _ENDS.get(told, Status.FAILED)
    if status is not Status.OK:
        yield FoundCase(
            op, {}, FAMILY, status=status, reason=testcase.text("error", f"nvbandwidth says {told}")
        )
        return
    unit = testcase.text("bandwidth_description", "").rpartition("(")[2].rstrip(") ")
    for row in testcase.items("bandwidth_matrix"):
        for column, cell in enumerate(row.elements()):
            value = cell.as_number()
            if value == value and unit in ("GB/s", "ns"):
                yield _case(op, {"row": row.path[-1], "column": column}, value, unit)


def _case(op: str, params: dict[str, str | int], value: float, unit: str) -> FoundCase:
    latency = unit == "ns"
    seconds = value * 1e-9 if latency else 1 / value if value > 0 else float("inf")
    reason = trouble(seconds)
    return FoundCase(
        op,
        {**params, "metric": "latency" if latency else "bandwidth"},
        FAMILY,
        () if reason else (seconds,),
        Status.FAILED if reason else Status.OK,
        reason,
        nbytes=None if latency else _GB,
    )
