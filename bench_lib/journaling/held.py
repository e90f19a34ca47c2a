"""What a campaign's folder holds already, and whether a run may be measured into it.

Runs of a GPU, runs of the CPU and results of other tools are never compared; in one campaign they would
only be mistaken for one another.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench_lib.errors import DataError, UsageError
from bench_lib.journaling import journal
from bench_lib.journaling.readable import rows
from bench_lib.layout import CampaignFolder

IMPORTED = "imported "  # how the command of every imported run begins
_NAMES = {"cuda": "a GPU", "cpu": "the CPU"}


def require_alike(folder: CampaignFolder, device: str, why: str = "") -> None:
    """Raise UsageError where a campaign holds what a run of `device` (`cuda`, `cpu`) must not stand beside.

    `why` is the reason for the device, where it was not asked for. One run tells of all: each was held to
    those before it.
    """
    for held, command in _runs(folder):
        where, because = f"campaign {folder.name!r} in {folder.results}", f" ({why})" if why else ""
        if command.startswith(IMPORTED):
            raise UsageError(
                f"{where} holds results of other tools, and they are never compared with measurements of "
                "this suite; name another campaign with --campaign"
            )
        if held in _NAMES and held != device:
            raise UsageError(
                f"{where} was measured on {_NAMES[held]}, and this run would measure "
                f"{_NAMES[device]}{because}; the two are never compared: name another campaign with "
                "--campaign"
            )
        return


def _runs(folder: CampaignFolder) -> Iterator[tuple[str, str]]:
    """Device and command of the runs that can be read, those that have ended first."""
    for row in rows(folder.parquet_files("runs"), ["device", "command"]):
        yield str(row["device"] or ""), str(row["command"] or "")
    for path in filter(Path.is_file, folder.journals()):  # reading a device may never end
        with contextlib.suppress(DataError, OSError):
            run = journal.read(path)[0]
            yield str(run.get("device") or ""), str(run.get("command") or "")
