"""What a campaign's folder holds already, and whether a run may be measured into it.

Runs of a GPU, runs of the CPU and results of other tools are never compared; in one campaign they would
only be mistaken for one another. Runs of other benchmark code are, and their difference would be the code's.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from bench_lib.errors import DataError, UsageError
from bench_lib.journaling import journal
from bench_lib.journaling.journal_rows import Row
from bench_lib.journaling.readable import rows
from bench_lib.layout import LOCAL, CampaignFolder
from bench_lib.model import Status
from bench_lib.stacking import family_code
from bench_lib.units import names_text

Files = Mapping[str, Collection[Path]]  # family -> its benchmark files

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


def require_same_code(folder: CampaignFolder, files: Files, planned: bool) -> None:
    """Raise UsageError where a campaign holds times of a family that other code than its `files` measured.

    In `local`, where every quick look goes, only rounds (`planned`) are held to rounds: a family of one's
    own is tried there while it is written.
    """
    looks = folder.name == LOCAL
    if looks and not planned:
        return
    if found := {family for family, in_round in _with_other_code(folder, files) if in_round or not looks}:
        raise UsageError(
            f"campaign {folder.name!r} in {folder.results} measured {_named(found)} with other code in the "
            "benchmark file, and what is compared would partly be the code that measures; undo the edit, or "
            "name another campaign with --campaign"
        )


def other_code(folder: CampaignFolder, files: Files) -> str:
    """That a campaign holds times of families that other code measured, in a sentence; else ""."""
    if not (found := {family for family, _ in _with_other_code(folder, files)}):
        return ""
    return (
        f"{folder.name} holds runs that measured {_named(found)} with other code in the benchmark file; to "
        "compare, name your own with --campaign"
    )


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
    named = _named(set().union(*(its.get(run["run_id"], ()) for run in strange)))
    what = f"by {' and '.join(by)}, policy {' and '.join(policies)}, {named}"
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
    for row in _rows(folder, "runs", ["device", "command"]):
        yield str(row["device"] or ""), str(row["command"] or "")


def _with_other_code(folder: CampaignFolder, files: Files) -> set[tuple[str, bool]]:
    """The families that runs have times of and measured with other code than their files; if in a round.

    Of a family in several files, a run may have measured some alone. Only what runs tell of is parsed.
    """
    runs = [
        (run["run_id"], bool(run["round"]), family_code.of_settings(dict(run["settings"] or {})))
        for run in _rows(folder, "runs", ["run_id", "round", "settings"])
    ]
    told = set().union(*(code for _, _, code in runs))
    now = family_code.of_files({family: paths for family, paths in files.items() if family in told})
    found = [
        (run, family, in_round)
        for run, in_round, code in runs
        for family, digests in code.items()
        if family in now and not digests <= now[family]
    ]
    cases = _rows(folder, "cases", ["run_id", "family", "status"]) if found else ()
    timed = {(case["run_id"], case["family"]) for case in cases if case["status"] == Status.OK}
    return {(family, in_round) for run, family, in_round in found if (run, family) in timed}


def _rows(folder: CampaignFolder, table: str, names: Sequence[str]) -> Iterator[Row]:
    """Some columns of `runs` or `cases`: of the files that can be read, then of journals without files."""
    yield from rows(folder.parquet_files(table), names)
    for path in filter(Path.is_file, folder.journals()):  # reading a device may never end
        with contextlib.suppress(DataError, OSError):
            events = journal.read(path)
            yield from _cases(events) if table == "cases" else [_run(events)]


def _run(events: list[Row]) -> Row:
    """What a journal tells of its run; not by way of Arrow, which would load pandas before the first case."""
    known = next((event.get("settings") for event in reversed(events) if event["event"] == "identity"), None)
    return {"device": "", "command": "", **events[0], "settings": known if isinstance(known, dict) else {}}


def _cases(events: list[Row]) -> Iterator[Row]:
    for event in events:
        if event["event"] == "case":
            family, status = (str(event.get(name)) for name in ("family", "status"))
            yield {"run_id": events[0]["run_id"], "family": family, "status": status}


def _named(families: Collection[str]) -> str:
    return names_text(sorted(families), _FAMILIES_SHOWN)
