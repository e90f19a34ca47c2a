"""What an entry of kind `container` in stacks.toml says of its image, read as strictly as the rest."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench_lib.errors import UsageError

ID_VARIABLE = "CUDA_GAINS_IMAGE"  # the id of the image that a process runs in
ENGINES = ("docker", "podman")  # in the order in which they are looked for
KEYS = ("engine", "python", "dockerfile", "context", "shm_size")  # besides `image`; all may be left out
_NAME = re.compile(r"[a-z0-9][\w.:/@-]*", re.ASCII)
_SIZE = re.compile(r"[1-9]\d*[kmg]", re.ASCII)
_SHM_SIZE = "8g"  # docker's own 64 MB are too few for NCCL and for data loaders


@dataclass(frozen=True)
class Image:
    """An image, and how its containers are started."""

    name: str  # as the engine knows it: NAME:TAG
    engine: str = ""  # docker or podman; "": whichever is there
    python: str = "python"  # the interpreter in the image
    dockerfile: Path | None = None  # from which `stacks create` builds it
    context: Path | None = None  # the folder that is sent to that build
    shm_size: str = _SHM_SIZE  # of /dev/shm


def read(where: str, text: Callable[[str], str], folder: Callable[[str], Path | None]) -> Image:
    """The image of an entry; UsageError for a value that cannot be one.

    `text` and `folder` give the value of a key: as text ("" without one), and as a path from the file.
    """
    name, engine, shm_size = text("image"), text("engine"), text("shm_size") or _SHM_SIZE
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where} has image {name!r}, expected NAME:TAG as docker and podman know it")
    if engine and engine not in ENGINES:
        raise UsageError(f"{where} has engine {engine!r}, expected one of {', '.join(ENGINES)}")
    if not _SIZE.fullmatch(shm_size):
        raise UsageError(f'{where} has shm_size {shm_size!r}, expected a size such as "8g"')
    dockerfile = folder("dockerfile")
    context = folder("context")
    if context is not None and dockerfile is None:
        raise UsageError(f"{where} has a context and no dockerfile; name the file that is built in it")
    python = text("python") or "python"
    return Image(name, engine, python, dockerfile, context or (dockerfile and dockerfile.parent), shm_size)
