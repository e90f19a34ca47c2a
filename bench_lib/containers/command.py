"""A process of a container stack as a command line: what it may see of this host, and nothing else.

Every folder is mounted at its own path, so that words that name files mean the same on both sides.
Variables are passed by name: their values stand in no list of processes, and none that could hold a
secret is named.
"""

import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench_lib.containers.engine import Engine, as_this_user, engine
from bench_lib.containers.image import Image
from bench_lib.errors import UsageError
from bench_lib.faults.secrets import secret_name
from bench_lib.stacking import cache, stacks, variables
from bench_lib.stacking.stacks import StackEntry

SUITE = Path(__file__).parents[1]  # this package: all stacks measure with one version of it
_INSIDE = "bench_lib.containers.inside"
_OWN = ("CUDA_GAINS_", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTHONPATH")
_OF_THE_HOST = ("LD_", "NVIDIA_VISIBLE_DEVICES")  # files of the host; what the engine itself decides
_HOME = "/tmp"  # noqa: S108  a home for a user that the image does not know
_GPUS = {"docker": ("--gpus", "all"), "podman": ("--device", "nvidia.com/gpu=all")}
# SELinux, where it is enforced, lets a container of podman read no folder that it has not labelled anew.
_LABELS = {"docker": (), "podman": ("--security-opt=label=disable",)}


@dataclass(frozen=True)
class Container:
    """One container of a stack: what is mounted, whether it gets the GPUs."""

    image: Image
    name: str
    gpus: bool = False
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    lifeline: Path | None = None  # a file whose lock its owner holds: the container ends with the owner

    @classmethod
    def asking(cls, entry: StackEntry, given: Mapping[str, str]) -> "Container":
        """A container of a stack that only asks its libraries; `given` names the stacks file."""
        assert entry.image is not None
        read = [Path(given[name]) for name in (stacks.FILE_VARIABLE,) if name in given]
        return cls(entry.image, f"cuda-gains-{uuid.uuid4().hex}", readable=tuple(read))

    @property
    def engine(self) -> Engine:
        """docker or podman; UsageError when it is not there."""
        return engine(self.image)

    def command(self, words: Sequence[str], given: Mapping[str, str]) -> list[str]:
        """The command that runs `words`, of the image's Python, in a new container.

        It is to be started with the variables `given`, of which those that `passed` names are let in.
        """
        its = self.engine
        line = [its.path, "run", "--rm", "--pull=never", "--name", self.name]
        line += ["--hostname", socket.gethostname(), *as_this_user(its.name)]  # a round is of one host
        line += ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--log-driver=none"]
        line += [f"--shm-size={self.image.shm_size}"]
        line += (*_LABELS[its.name], *(_GPUS[its.name] if self.gpus else ()))
        line += [word for name in passed(given) for word in ("--env", name)]
        line += ["--env", f"HOME={_HOME}", "--env", "USER=cuda-gains"]
        line += ["--env", f"XDG_CACHE_HOME={cache.root().parent}", "--workdir", _HOME]
        line += self._mounts()
        line += ["--entrypoint", self.image.python, self.image.name, "-m", _INSIDE]
        return [*line, str(self.lifeline or ""), *words]

    def end(self) -> None:
        """End the container, whatever became of the process that started it."""
        with suppress(UsageError):
            self.engine.remove(self.name)

    def _mounts(self) -> list[str]:
        cache.writable(cache.root())
        writable = _absolute((cache.root(), *self.writable))
        readable = [path for path in _absolute((SUITE, *self.readable)) if path not in writable]
        return [word for path in writable for word in ("--volume", f"{path}:{path}")] + [
            word for path in readable for word in ("--volume", f"{path}:{path}:ro")
        ]


def passed(given: Mapping[str, str]) -> list[str]:
    """The names of the variables that a container is given: the suite's own, and those that move numbers."""
    moving = variables.moving(given)
    cached = f"{cache.root()}/"  # where compilers keep what they make: it is mounted
    ours = [name for name, value in given.items() if name.startswith(_OWN) or value.startswith(cached)]
    other = [name for name, value in moving.items() if not value.startswith("/")]
    names = dict.fromkeys([*ours, *other])
    return [name for name in names if not name.startswith(_OF_THE_HOST) and not secret_name(name)]


def _absolute(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(path.absolute() for path in paths))
