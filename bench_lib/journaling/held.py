"""What a campaign's folder holds already, and whether a run may be measured into it.

Runs of a GPU, runs of the CPU and results of other tools are never compared; in one campaign they would
only be mistaken for one another.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from bench_lib.errors import DataError, UsageError
from bench_lib.journaling import journal
from bench_lib.journaling.readable import rows
from bench_lib.layout import CampaignFolder
from bench_lib.model import Status
from bench_lib.units import names_text

IMPORTED = "imported "  # how the command of every imported run begins
_FAMILIES_SHOWN = 3
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


def others(folder: CampaignFolder, planned: bool, policy: str, families: Collection[str] = ()) -> str:
    """That a campaign holds runs which this command would not repeat, in a sentence; "" where it holds none.

    Those of plain pytest beside the rounds of a plan (`planned`); else such rounds, and runs of another
    policy or of families that are not among `families`.
    """
    its: dict[str, set[str]] = {}
    for case in rows(folder.parquet_files("cases"), ["run_id", "family"]):
        its.setdefault(case["run_id"], set()).add(case["family"])
    runs = list(rows(folder.parquet_files("runs"), ["run_id", "round", "policy"]))
    strange = [
        run
        for run in runs
        if bool(run["round"]) != planned
        or not (planned or (run["policy"] == policy and its.get(run["run_id"], set()) <= set(families)))
    ]
    if not strange:
        return ""
    by = sorted({"cuda-gains run" if run["round"] else "plain pytest" for run in strange})
    policies = sorted({run["policy"] for run in strange})
    named = sorted(set().union(*(its.get(run["run_id"], ()) for run in strange)))
    what = f"by {' and '.join(by)}, policy {' and '.join(policies)}, {names_text(named, _FAMILIES_SHOWN)}"
    many = "s" if len(strange) > 1 else ""
    return (
        f"{folder.name} already holds {len(strange)} other run{many} ({what}); name your own with --campaign"
    )


def repeats(folder: CampaignFolder, stack: str, policy: str, families: Collection[str]) -> int:
    """In how many runs of a stack under a policy each of `families` was measured, at least."""
    runs = rows(folder.parquet_files("runs"), ["run_id", "stack", "policy"])
    own = {run["run_id"] for run in runs if (run["stack"], run["policy"]) == (stack, policy)}
    cases = rows(folder.parquet_files("cases"), ["run_id", "family", "status"])
    ok = {(case["run_id"], case["family"]) for case in cases if case["status"] == Status.OK}
    times = Counter(family for run, family in ok if run in own)
    return min(times[family] for family in families)


def _runs(folder: CampaignFolder) -> Iterator[tuple[str, str]]:
    """Device and command of the runs that can be read, those that have ended first."""
    for row in rows(folder.parquet_files("runs"), ["device", "command"]):
        yield str(row["device"] or ""), str(row["command"] or "")
    for path in filter(Path.is_file, folder.journals()):  # reading a device may never end
        with contextlib.suppress(DataError, OSError):
            run = journal.read(path)[0]
            yield str(run.get("device") or ""), str(run.get("command") or "")
