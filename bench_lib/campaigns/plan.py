"""What a campaign is asked to do, and plan.json: what it was asked to do before."""

import contextlib
import json
import math
import secrets
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_lib import suite_files
from bench_lib.campaigns import schedule
from bench_lib.errors import DataError, UsageError
from bench_lib.faults.whole import whole
from bench_lib.journaling import journal
from bench_lib.journaling.readable import rows
from bench_lib.layout import CampaignFolder
from bench_lib.places.address import Address
from bench_lib.stacking import families
from bench_lib.stacking.stacks import StackEntry, stack

FILE = "plan.json"
_ALL = "all"
_LATER = {
    "ranks": _ALL,
    "nccl": [],
    "soak": 0.0,
    "keyword": "",
}  # what a plan stored before there was such a key stands for
_DEVICES = ("auto", "cuda", "cpu")
_MAY_CHANGE = frozenset({"rounds", "seed", "command"})


@dataclass(frozen=True)
class Plan:
    """A campaign as it is asked for. The first stack is the baseline."""

    campaign: str
    results: Path
    stacks: tuple[str, ...]
    url: str = ""  # of the place where results belong, when that is not `results`
    rounds: int = 10  # finished rounds in the folder at the end
    families: tuple[str, ...] = ()
    keyword: str = ""  # of pytest's -k: which of the cases
    quick: bool = False
    full: bool = False
    soak: float = 0.0  # minutes of each soak; 0: none
    null: bool = True  # the baseline runs a second time in each round
    device: str = "auto"
    wheels: Path | None = None
    ranks: str = _ALL  # of a collective: a number, or all
    nccl: tuple[str, ...] = ()  # libnccls by path, each NAME=PATH
    benchmarks: Path = Path("benchmarks")
    extra: tuple[str, ...] = ()  # more arguments for pytest
    stacks_file: Path | None = None
    seed: int | None = None  # of all orders; drawn and stored when None
    watchdog_seconds: float = 60.0  # on top of a case's own budget
    idle_seconds: float = 120.0  # at most without a case: imports and collection
    cool_down_c: float | None = None  # wait before each process until so near the first temperature
    cool_down_seconds: float = 300.0  # the longest wait
    program: tuple[str, ...] = (sys.executable, "-m", "pytest")  # each stack has its own interpreter

    def __post_init__(self) -> None:
        if not self.stacks:
            raise UsageError("a campaign needs at least one stack; name it with --stack")
        if len(set(self.stacks)) != len(self.stacks):
            raise UsageError("a stack is named twice; name each once (the baseline's repeat comes by itself)")
        if self.rounds < 1:
            raise UsageError(f"--rounds is {self.rounds}, expected at least 1")
        if not 0 <= self.soak < math.inf:
            raise UsageError(f"--soak is {self.soak:g}, expected minutes, such as 30")
        if self.cool_down_c is not None and not 0 < self.cool_down_c < 100:
            raise UsageError(f"--cool-down is {self.cool_down_c:g} °C, expected a band such as 5")
        if self.device not in _DEVICES:
            raise UsageError(f"--device is {self.device!r}, expected one of {', '.join(_DEVICES)}")
        if not self.benchmarks.exists():
            raise UsageError(
                f"there is no folder {self.benchmarks}; measuring needs the benchmark files of a checkout of "
                "the suite, or your own: name their folder with --benchmarks"
            )
        families.check(self.benchmarks, self.families, suite_files.folders())

    @property
    def places(self) -> tuple[Path, ...]:
        """Where the benchmark files lie: the folder, then the suite's files of families that it lacks."""
        more = families.from_suite(self.benchmarks, self.families, suite_files.folders())
        return (self.benchmarks, *more)

    @property
    def address(self) -> Address:
        """Where the results belong."""
        return Address(self.results, self.url)

    @property
    def folder(self) -> CampaignFolder:
        """Where the campaign's files lie on this machine."""
        return CampaignFolder(self.results, self.campaign)

    @property
    def arms(self) -> dict[str, str]:
        """Arm -> stack of each round."""
        return schedule.arms(self.stacks, self.null)

    def entries(self) -> list[StackEntry]:
        """The stacks' entries; UsageError for an unknown one."""
        return [stack(name, self.stacks_file) for name in self.stacks]

    @property
    def command(self) -> str:
        """The command line that begins this campaign, and goes on with it."""
        words = ["cuda-gains", "run", *_each("--stack", self.stacks), *_each("--family", self.families)]
        words += ["-k", self.keyword] if self.keyword else []
        words += ["--rounds", str(self.rounds), "--campaign", self.campaign]
        words += _flags({"--quick": self.quick, "--full": self.full, "--no-null": not self.null})
        given = {"--results": self.address, "--benchmarks": self.benchmarks, "--device": self.device}
        given |= {"--ranks": self.ranks, "--soak": f"{self.soak:g}"}
        words += _each("--nccl", self.nccl)
        usual = {"--results": "results", "--benchmarks": "benchmarks", "--device": "auto", "--ranks": _ALL}
        usual |= {"--soak": "0"}
        for option, value in given.items():
            words += [option, str(value)] if str(value) != usual[option] else []
        words += [] if self.cool_down_c is None else ["--cool-down", f"{self.cool_down_c:g}"]
        return shlex.join(words + ([] if self.wheels is None else ["--wheels", str(self.wheels)]))

    def arguments(self, stack_name: str) -> list[str]:
        """The arguments of pytest in a process of `stack_name`."""
        words = [*map(_word, self.places), "-p", "cuda_gains", "-p", "benchmark", "-p", "no:cacheprovider"]
        words += ["--capture=sys"]  # what C code prints goes to the log, which is kept short
        words += ["--campaign", self.campaign]
        words += ["--stack", stack_name, "--results", _word(self.results), "--device", self.device]
        words += ["--ranks", self.ranks] if self.ranks != _ALL else []
        words += ["--soak", f"{self.soak:g}"] if self.soak else []
        words += ["-k", self.keyword] if self.keyword else []
        words += _each("--nccl", self.nccl)
        words += [*_each("--family", self.families), *_flags({"--quick": self.quick, "--full": self.full})]
        return words + ([] if self.wheels is None else ["--wheels", str(self.wheels)]) + list(self.extra)


def _word(path: Path) -> str:
    """A path as an argument of its own: one that begins with a dash would be taken for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _each(option: str, values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _flags(flags: dict[str, bool]) -> list[str]:
    return [flag for flag, is_set in flags.items() if is_set]


def settle(plan: Plan, begun: bool = False) -> int:
    """Store the plan, or go on with the stored one; the campaign's seed.

    `begun` says that the stored plan counts although no run is here yet: another machine stored it.

    Raises UsageError, naming what differs, when something was measured with another plan. Only the
    number of rounds may change.
    """
    path = plan.folder.path / FILE
    stored = _read(path) if path.exists() and (begun or _begun(plan.folder)) else {}
    asked: dict[str, Any] = {
        "stacks": list(plan.stacks),
        "pins": {entry.name: list(entry.pins) for entry in plan.entries()},
        "families": sorted(plan.families),
        "keyword": plan.keyword,
        "quick": plan.quick,
        "full": plan.full,
        "soak": plan.soak,
        "null": plan.null,
        "device": plan.device,
        "ranks": plan.ranks,
        "nccl": list(plan.nccl),
        "cool_down_c": plan.cool_down_c,
        "benchmarks": str(plan.benchmarks),
        "extra": list(plan.extra),
        "rounds": plan.rounds,
        "seed": secrets.randbits(31) if plan.seed is None else plan.seed,
        "command": plan.command,
    }
    for key, value in asked.items() if stored else ():
        if key not in _MAY_CHANGE and stored.get(key, _LATER.get(key)) != value:
            raise UsageError(
                f"campaign {plan.campaign!r} was begun with {key} {json.dumps(stored.get(key))}, this "
                f"command says {json.dumps(value)}; repeat `{stored.get('command')}` or choose "
                "another --campaign"
            )
    if not stored or plan.rounds > stored["rounds"]:
        stored = asked | {"seed": stored.get("seed", asked["seed"])}
        write_json(path, stored)
    return int(stored["seed"])


def _begun(folder: CampaignFolder) -> bool:
    """Whether a run of a round is there: what plain pytest measured into the folder followed no plan."""
    rounds = [row["round"] for row in rows(folder.parquet_files("runs"), ["round"])]
    for path in folder.journals():
        with contextlib.suppress(DataError):
            rounds.append(journal.read(path)[0]["round"])
    return any(rounds)


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text())
        if isinstance(stored["seed"], int) and isinstance(stored["rounds"], int):
            return dict(stored)
    except (ValueError, KeyError, TypeError):
        pass
    raise DataError(f"{path} is not a campaign's plan; restore it or choose another --campaign")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file that is complete or not there at all."""
    with whole(path) as stream:
        stream.write(f"{json.dumps(content, indent=1)}\n".encode())
