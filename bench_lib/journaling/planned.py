"""What a campaign of rounds was asked for, how far it is and what a round took, as its files tell.

Files that are missing or damaged tell nothing: who measures into the folder judges them, not who reads.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench_lib.layout import CampaignFolder
from bench_lib.model import NULL_SUFFIX


@dataclass(frozen=True)
class Planned:
    """The plan of a campaign and its finished rounds."""

    stacks: tuple[str, ...]
    null: bool  # the first stack runs a second time in each round
    rounds: int  # asked for
    finished: int
    round_seconds: float | None  # what one took, the median; None where none is finished
    words: tuple[str, ...]  # of the command that goes on with it

    @property
    def arms(self) -> set[str]:
        """What a round holds: the stacks, and the repeat of the first."""
        return {*self.stacks, *(stack + NULL_SUFFIX for stack in self.stacks[: self.null])}

    def command(self, more: int = 0) -> str:
        """What to type for the missing rounds, or for `more` than are finished."""
        words = list(self.words)
        if more and "--rounds" in words[:-1]:
            words[words.index("--rounds") + 1] = str(self.finished + more)
        return shlex.join(words)


def of(folder: CampaignFolder) -> Planned | None:
    """The plan and the rounds of a campaign; None where it follows no plan, as plain pytest does not."""
    plan = _read(folder.path / "plan.json")
    try:
        stacks, null, rounds = tuple(map(str, plan["stacks"])), bool(plan["null"]), int(plan["rounds"])
        words = _where(shlex.split(plan["command"]), folder)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    records = [found for path in sorted((folder.path / "rounds").glob("*.json")) if (found := _read(path))]
    lasted = seconds_a_round(records)
    return Planned(stacks, null, rounds, len(records), lasted, words)


def _where(words: list[str], folder: CampaignFolder) -> tuple[str, ...]:
    """The words of a command for the folder that was read: it may have been moved or renamed since."""
    here = {"--campaign": folder.path.name, "--results": str(folder.path.parent)}
    for option, value in here.items():
        place = words.index(option) + 1 if option in words[:-1] else 0
        if place and "://" not in words[place]:  # a campaign elsewhere is read from a copy
            words[place] = value
    if "--results" in words[:-1] and here["--results"] == "results":
        place = words.index("--results")
        del words[place : place + 2]
    return tuple(words)


def seconds_a_round(records: Iterable[Mapping[str, Any]]) -> float | None:
    """What a round took by the records of finished ones, the median; None without any that tells."""
    ends = [(record.get("started_at"), record.get("ended_at")) for record in records]
    took = [end - start for start, end in ends if isinstance(start, float) and isinstance(end, float)]
    return median(took) if took else None


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
