"""docker or podman: which is there, which images it has, and what it says when it cannot."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_lib.containers.image import ENGINES, Image
from bench_lib.errors import Unavailable, UsageError

_ANSWER_SECONDS = 60.0
_OF_THE_ENGINE = (125, 126, 127)  # `docker run`, exit status: the engine failed, or could not run the command
_NONE_OF_THE_NAME = ("no such image", "image not known", "no such object")
_GPU_FILES = ("nvidiactl", "dxg")  # of Linux, of WSL
# How engines say that they cannot hand over a GPU; compared in lower case.
_NO_GPU = (
    "could not select device driver",
    "unresolvable cdi devices",
    "nvidia-container",
    "unknown runtime",
)
_TOOLKIT = "install the NVIDIA Container Toolkit on this host"
_NO_GPU_MEND = {
    "docker": _TOOLKIT,
    "podman": f"{_TOOLKIT}, and describe its GPUs with `nvidia-ctk cdi generate`",
}


@dataclass(frozen=True)
class Engine:
    """An engine that is in PATH."""

    name: str  # docker or podman
    path: str

    def ask(
        self, *words: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Its answer to some words; UsageError when it gives none in time."""
        try:
            return subprocess.run(
                [self.path, *words],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                env=variables,
                timeout=_ANSWER_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{self.path} gives no answer ({error}); start it, or repair it") from None

    def image_id(self, image: Image) -> str:
        """The id of an image, "" when it is not here; UsageError when the engine does not answer."""
        done = self.ask("image", "inspect", "--format", "{{.Id}}", image.name)
        if done.returncode == 0:
            return done.stdout.strip()
        if any(words in done.stderr.lower() for words in _NONE_OF_THE_NAME):
            return ""
        raise UsageError(
            f"{self.name} does not answer ({last_line(done.stderr)}); start it, or let this user talk to it"
        )

    def build(self, image: Image, say: Callable[[str], None]) -> None:
        """Build an image from its dockerfile, telling each line; Unavailable with the last if it fails."""
        assert image.dockerfile is not None
        assert image.context is not None
        if not image.dockerfile.is_file():
            raise UsageError(
                f"there is no {image.dockerfile}; correct `dockerfile` of the image {image.name}"
            )
        words = ["build", "--file", str(image.dockerfile), "--tag", image.name, str(image.context)]
        line = ""
        with subprocess.Popen(
            [self.path, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        ) as child:
            assert child.stdout is not None
            for told in filter(None, map(str.strip, child.stdout)):
                line = told
                say(told)
        if child.returncode != 0:
            raise Unavailable(
                f"{self.name} could not build {image.name} from {image.dockerfile} ({line or 'no reason'}); "
                "correct it, or check the network"
            )

    def remove(self, container: str) -> None:
        """End and remove a container; harmless when it is gone."""
        self.ask("rm", "--force", container)


def engine(image: Image) -> Engine:
    """The engine of an image; UsageError when it is not in PATH."""
    wanted = (image.engine,) if image.engine else ENGINES
    for name in wanted:
        if path := shutil.which(name):
            return Engine(name, path)
    raise UsageError(f"no {' or '.join(wanted)} in PATH to run the image {image.name}; install one")


def is_here(image: Image) -> bool:
    """Whether there is an engine that has the image; never raises."""
    try:
        return bool(engine(image).image_id(image))
    except UsageError:
        return False


def host_has_gpu(dev: Path = Path("/dev")) -> bool:
    """Whether this host has NVIDIA's driver loaded; CUDA stays untouched."""
    return any((dev / name).exists() for name in _GPU_FILES)


def not_started(name: str, stack: str, done: "subprocess.CompletedProcess[str]") -> str:
    """Why an engine has started no container of a stack, in one sentence; "" where it has."""
    if done.returncode not in _OF_THE_ENGINE:
        return ""
    if any(words in done.stderr.lower() for words in _NO_GPU):
        what = f"{name} gives stack {stack} no GPU ({last_line(done.stderr)})"
        return f"{what}; {_NO_GPU_MEND[name]}, or measure the CPU with --device cpu"
    what = f"{name} starts no container of stack {stack} ({last_line(done.stderr)})"
    return f"{what}; correct its entry or its image, or mend {name}"


def last_line(said: str) -> str:
    """The last line that says something; docker's own closes with where its help is."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("Run 'docker")]
    return (told or ["it says nothing"])[-1][:300]


def user() -> str:
    """This user, as an engine takes one: what a container writes is this user's."""
    return f"{os.getuid()}:{os.getgid()}"


def as_this_user(name: str) -> Sequence[str]:
    """The words by which a container runs as this user, and not as the root of its image."""
    rootless = name == "podman" and os.getuid() != 0
    return (*(["--userns=keep-id"] if rootless else []), "--user", user())
