"""The formats that can be imported, and which of them a file has. A new one is a module and a line here."""

from collections.abc import Callable
from typing import NamedTuple

from bench_lib.errors import DataError, UsageError
from bench_lib.importing import nccl_json, nccl_text, nvbandwidth, nvbench, superbench
from bench_lib.importing.found import FoundRun, Source


class Format(NamedTuple):
    """One format: what it is called, whether a file has it, and what a file holds."""

    name: str
    recognised: Callable[[Source], bool]
    read: Callable[[Source], list[FoundRun]]


JSON = (
    Format("nccl-tests JSON", nccl_json.recognised, nccl_json.read),
    Format("nvbandwidth JSON", nvbandwidth.recognised, nvbandwidth.read),
    Format("nvbench JSON", nvbench.recognised, nvbench.read),
)
LINES = Format("SuperBench results", superbench.recognised, superbench.read)
TEXT = Format("nccl-tests table", nccl_text.recognised, nccl_text.read)
FORMATS = (*JSON, LINES, TEXT)


def read(source: Source) -> tuple[Format, list[FoundRun]]:
    """The format of a file and the runs in it.

    Raises DataError for a file of a known format that is damaged, UsageError for one of no known format.
    """
    found = _format_of(source)
    runs = found.read(source)
    if not any(run.cases for run in runs):
        raise DataError(f"{source.path}: is a file of {found.name} without a result; measure again")
    return found, runs


def _format_of(source: Source) -> Format:
    if source.text.lstrip()[:1] not in ("{", "["):
        if TEXT.recognised(source):
            return TEXT
        raise _unknown(source, "no table of nccl-tests")
    if LINES.recognised(source):
        return LINES
    value = source.document
    for one in JSON:
        if one.recognised(source):
            return one
    if isinstance(value, dict) and "machine_info" in value:
        raise UsageError(
            f"{source.path} was written by pytest-benchmark; name it in `cuda-gains compare` as it is"
        )
    keys = ", ".join(list(value)[:5]) if isinstance(value, dict) else "no object"
    raise _unknown(source, f"JSON of another tool ({keys})")


def _unknown(source: Source, found: str) -> UsageError:
    known = ", ".join(one.name for one in FORMATS)
    return UsageError(f"{source.path}: {found}; can be imported: {known}")
