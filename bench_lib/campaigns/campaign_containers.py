"""How a measuring process of a campaign is started: as it is, or in a container of its stack's image.

A container sees the campaign's folder, in which it writes, and what it reads: the benchmark files with the
pytest configuration above them, the stacks file, its task, wheels and libraries that the command names.
"""

import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench_lib.campaigns.plan import Plan
from bench_lib.containers import engine
from bench_lib.containers.command import Container
from bench_lib.errors import UsageError
from bench_lib.stacking import environments, stacks
from bench_lib.stacking.stacks import StackEntry

_CONFIGURATIONS = ("pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_LOCK_FOLDER = "CUDA_GAINS_LOCK_DIR"  # see bench_lib.device.gpu_lock
_TRIES = ("-c", "pass")


@dataclasses.dataclass(frozen=True)
class Started:
    """The command of a process, and the variables that it is started with."""

    command: Sequence[str]
    variables: Mapping[str, str]
    container: Container | None = None

    def end(self) -> None:
        """End the container, if it is one: an engine leaves it running when its command was killed."""
        if self.container is not None:
            self.container.end()


def process(plan: Plan, entry: StackEntry, run_id: str, task: Path) -> Started:
    """The measuring process of a run of `entry`; its task is the file `task`.

    Raises UsageError when the stack's environment, image or engine is not there.
    """
    its = environments.environment(entry)
    variables = {**its.variables, "CUDA_GAINS_TASK": str(task)}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins cost seconds, see Plan.arguments
    file = plan.stacks_file or (stacks.file() if entry.image is not None else None)
    if file is not None:
        variables[stacks.FILE_VARIABLE] = str(file.absolute() if entry.image is not None else file)
    if entry.image is None:
        return Started([its.python, *plan.program[1:], *plan.arguments(entry.name)], variables)
    locks = _locks(variables)
    container = _container(plan, entry, run_id, (task, *([file] if file else [])), locks)
    words = [*plan.program[1:], *_absolute(plan).arguments(entry.name)]
    return Started(container.command(words, variables), variables, container)


def require_gpus(plan: Plan) -> None:
    """Raise UsageError where containers are to measure a GPU and the engine hands none over."""
    for entry in plan.entries():
        if entry.image is None or not _on_gpu(plan):
            continue
        variables = environments.environment(entry).variables
        container = dataclasses.replace(Container.asking(entry, variables), gpus=True)
        command = container.command(_TRIES, variables)
        done = container.engine.ask(*command[1:], variables=variables)
        if said := engine.not_started(container.engine.name, entry.name, done):
            raise UsageError(said)


def _container(
    plan: Plan, entry: StackEntry, run_id: str, read: Sequence[Path], locks: Sequence[Path]
) -> Container:
    assert entry.image is not None
    plan.folder.path.mkdir(parents=True, exist_ok=True)  # else the engine makes it, as root
    return Container(
        entry.image,
        f"cuda-gains-{run_id}",
        gpus=_on_gpu(plan),
        writable=(plan.folder.path, *locks),
        readable=(*read, *(one for place in plan.places for one in _benchmarks(place)), *_named(plan)),
        lifeline=(plan.folder.path / ".lock").absolute(),
    )


def _locks(variables: dict[str, str]) -> tuple[Path, ...]:
    """The folder of the GPUs' locks, else the lock of each GPU, and the variable that says where they are."""
    if folder := variables.get(_LOCK_FOLDER):
        Path(folder).mkdir(parents=True, exist_ok=True)
        return (Path(folder),)
    variables[_LOCK_FOLDER] = tempfile.gettempdir()
    return lock_files(Path(tempfile.gettempdir()))


def lock_files(folder: Path, gpus: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[Path, ...]:
    """The lock of each GPU that the driver tells of, as device.gpu_lock calls them; made where missing."""
    told = [path.read_text(errors="replace") for path in sorted(gpus.glob("*/information"))]
    found = [match[1] for text in told if (match := re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE))]
    files = [folder / f"cuda-gains-{uuid}.lock" for uuid in found]
    for file in files:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o666))
            file.chmod(0o666)  # past the umask
    return tuple(files)


def _on_gpu(plan: Plan) -> bool:
    return plan.device == "cuda" or (plan.device == "auto" and engine.host_has_gpu())


def _absolute(plan: Plan) -> Plan:
    """The same plan for a process that is started elsewhere."""
    wheels = None if plan.wheels is None else plan.wheels.absolute()
    nccl = tuple(f"{name}={Path(path).absolute()}" for name, path in _nccl(plan))
    return dataclasses.replace(
        plan, benchmarks=plan.benchmarks.absolute(), results=plan.results.absolute(), wheels=wheels, nccl=nccl
    )


def _benchmarks(place: Path) -> Iterator[Path]:
    """The folder of the benchmark files, and the first configuration that pytest finds above it."""
    folder = place.absolute() if place.is_dir() else place.absolute().parent
    yield folder
    for parent in (folder, *folder.parents):
        if found := [parent / name for name in _CONFIGURATIONS if (parent / name).is_file()]:
            yield from found
            return


def _named(plan: Plan) -> Iterator[Path]:
    if plan.wheels is not None:
        yield plan.wheels
    for _, path in _nccl(plan):
        yield Path(path).resolve().parent  # its parts lie beside it
        yield Path(path)


def _nccl(plan: Plan) -> Iterator[tuple[str, str]]:
    for one in plan.nccl:
        name, _, path = one.partition("=")
        yield name, path
