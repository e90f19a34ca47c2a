"""The finished rounds of a campaign, as their records and their runs' rows tell of them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench_lib.errors import CudaGainsError
from bench_lib.journaling import planned
from bench_lib.journaling.journal_rows import Row
from bench_lib.journaling.readable import rows, unreadable
from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.units import count_text, duration_text, names_text

_NAMES = 3
_MACHINE = ("host", "boot_id", "gpu_uuid", "gpu_name", "device")  # of a round: the same in all its runs
_ALWAYS = {"device": "no known device", "gpu_name": "no known GPU"}  # the same in all rounds


class Stopped(CudaGainsError):
    """The campaign cannot go on; what was measured is kept."""


def finished_rounds(folder: CampaignFolder) -> list[Path]:
    """The files of a campaign's finished rounds: those whose record is whole and whose runs are there."""
    return [path for path, _ in _finished(folder)]


def records(folder: CampaignFolder) -> list[Row]:
    """The records of a campaign's finished rounds."""
    return [record for _, record in _finished(folder)]


def rounds_text(folder: CampaignFolder, rounds: int, where: str) -> str:
    """How many of the rounds are in `where`; and the tables that cannot be read, though they count."""
    said = f"{len(finished_rounds(folder))} of {rounds} rounds are in {where}"
    damaged = unreadable(path for table in TABLES for path in folder.parquet_files(table))
    if not damaged:
        return said
    names = names_text([str(path) for path in damaged], _NAMES)
    return (
        f"{said}; {count_text(len(damaged), 'file')} cannot be read, so nothing of that is compared: {names}"
    )


def expected(finished: Sequence[Row], missing: int) -> str:
    """What the missing rounds take if they take what those before did; "" where none is there, or missing."""
    each = planned.seconds_a_round(finished)
    if each is None or missing < 1:
        return ""
    there = "1 round is" if len(finished) == 1 else f"{len(finished)} rounds are"
    more = "1 more takes" if missing == 1 else f"{missing} more take"
    takes = f"{there} finished, {more} about {duration_text(missing * each)}"
    return f"{takes}: a round took {duration_text(each)}"


def next_index(finished: Iterable[Row]) -> int:
    """The first place in the campaign's order of rounds that no finished round has.

    Of machines that measure at once each so goes through that order itself, and stays balanced.
    """
    taken = {record.get("index", number) for number, record in enumerate(finished)}
    return next(index for index in range(len(taken) + 1) if index not in taken)


def machine(folder: CampaignFolder, round_id: str, runs: Sequence[str]) -> Row:
    """Where a round was measured; a round of two boots, GPUs or devices is none.

    Every run says its device, so that an arm that lost the GPU is seen though it names none.
    Raises Stopped then, and when the finished rounds were measured on another device or GPU model.
    """
    its = _run_rows(folder, ["run_id", *_MACHINE])
    found = [its[run] for run in runs]
    for name in _MACHINE:
        if len(values := {row[name] for row in found if row[name]}) > 1:
            raise Stopped(
                f"round {round_id} was measured with {name} {' and '.join(sorted(values))}, expected one; "
                "set CUDA_VISIBLE_DEVICES to one GPU and give the command again"
            )
    one = {name: next((row[name] for row in found if row[name]), "") for name in _MACHINE}
    finished = {run for record in records(folder) for run in record["runs"]}
    for name, none in _ALWAYS.items():
        earlier = {its[run][name] or "" for run in finished}
        if earlier - {one[name]}:
            theirs = " and ".join(value or none for value in sorted(earlier))
            raise Stopped(
                f"round {round_id} was measured on {one[name] or none}, the campaign's finished rounds on "
                f"{theirs}; make that device available again and give the command again, or choose another "
                "--campaign"
            )
    return one


def _finished(folder: CampaignFolder) -> list[tuple[Path, Row]]:
    paths = sorted((folder.path / "rounds").glob("*.json"))
    there = _run_rows(folder, ["run_id"]) if paths else {}
    found = [(path, record) for path in paths if (record := _record(path))]
    return [(path, record) for path, record in found if all(run in there for run in record["runs"])]


def _record(path: Path) -> Row | None:
    """A round's record, or None when it is not whole."""
    try:
        record = json.loads(path.read_bytes())
        runs, order = record["runs"], record["order"]
        whole = isinstance(record["round"], str) and isinstance(order, list) and isinstance(runs, list)
        whole &= isinstance(record.get("index", 0), int)
        return record if whole and runs and order and all(isinstance(run, str) for run in runs) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _run_rows(folder: CampaignFolder, names: list[str]) -> dict[str, Row]:
    """Run id -> some columns of its row, of every file of runs that can be read, merged ones too."""
    found: dict[str, Row] = {}
    for row in rows(folder.parquet_files("runs"), names):
        found.setdefault(row["run_id"], row)
    return found
