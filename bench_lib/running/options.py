"""What a run was asked to do: by the command line, and by a campaign."""

import json
import math
import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench_lib.errors import UsageError
from bench_lib.layout import LOCAL, CampaignFolder, check_name
from bench_lib.model import DEFAULT_POLICY, QUICK_POLICY, Policy
from bench_lib.nccl import found
from bench_lib.places import address
from bench_lib.places.address import Address

RESULTS = "results"
TASK_VARIABLE = "CUDA_GAINS_TASK"


@dataclass(frozen=True)
class Task:
    """What a campaign tells its process: which run this is, and what is done already."""

    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    round: str = ""
    arm: str = ""
    position: int = 0
    seed: int = 0
    skip: tuple[str, ...] = ()
    quantities: Mapping[str, float] = field(default_factory=dict)  # what the run's row keeps of the wait

    @classmethod
    def of_environment(cls) -> "Task":
        """The task of the file that $CUDA_GAINS_TASK names, else that of a plain run."""
        if not (path := os.environ.get(TASK_VARIABLE)):
            return cls()
        try:
            given = json.loads(Path(path).read_text())
            task = cls(**{**given, "skip": tuple(given.get("skip", ()))})
            check_name("run", task.run_id)  # it becomes the name of files
            return task
        except (OSError, ValueError, TypeError, AttributeError, UsageError) as error:
            raise UsageError(f"the task file {path} of ${TASK_VARIABLE} cannot be used: {error}") from None


def soak_minutes(given: float) -> float:
    """The minutes of --soak, 0 for none; UsageError for a number that is no time."""
    if not 0 <= given < math.inf:
        raise UsageError(f"--soak is {given:g}, expected minutes, such as 30")
    return given


def _results(config: pytest.Config) -> str:
    """`results` here, or of the project of whose folder this one is a part, as seen from here."""
    root, here = config.rootpath, config.invocation_params.dir
    inside = config.inipath is not None and root in here.parents
    return os.path.relpath(root / RESULTS, here) if inside and not (here / RESULTS).exists() else RESULTS


def _folder(places: Sequence[str]) -> str:
    """The folder of the benchmark files that pytest was pointed to."""
    place = Path(str(places[0]).partition("::")[0]) if places else Path()
    return str(place if place.is_dir() else place.parent)


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    device: str = "auto"
    require_gpu: bool = False
    families: tuple[str, ...] = ()
    quick: bool = False
    full: bool = False
    keyword: str = ""  # of pytest's -k
    benchmarks: str = "benchmarks"  # the folder of the first place that pytest was given
    campaign: str = LOCAL
    stack: str = "here"
    address: Address = field(default_factory=lambda: Address(Path("results")))
    wheels: Path | None = None
    soak_minutes: float = 0.0  # of each soak; 0: none is measured
    ranks: str = "all"
    nccl: Mapping[str, Path] = field(default_factory=dict)  # libnccls by name
    nvtx: bool = False  # a range around every case
    json: Path | None = None
    command: str = ""

    @classmethod
    def of(cls, config: pytest.Config) -> "Options":
        """The options of a pytest session; UsageError for an address or a --nccl that is none."""
        get = config.getoption
        return cls(
            device=get("device"),
            require_gpu=get("require_gpu"),
            families=tuple(get("family") or ()),
            quick=get("quick"),
            full=get("full"),
            keyword=get("keyword"),
            benchmarks=_folder(config.args),
            campaign=get("campaign"),
            stack=get("stack"),
            address=address.parse(get("results") or _results(config)),
            wheels=get("wheels"),
            soak_minutes=soak_minutes(get("soak")),
            ranks=get("ranks"),
            nccl=found.named(get("nccl")),
            nvtx=get("nvtx"),
            json=get("benchmark_json", None),
            command=shlex.join(["pytest", *map(str, config.invocation_params.args)]),
        )

    @property
    def policy(self) -> Policy:
        """The policy of the run's cases."""
        return QUICK_POLICY if self.quick else DEFAULT_POLICY

    @property
    def folder(self) -> CampaignFolder:
        """The campaign's folder on this machine; UsageError for a name that cannot be one."""
        return CampaignFolder(self.address.folder, self.campaign)
