"""Where a libnccl lies: a stack's, that of a version (cache or folder of wheels), or one given by path."""

import re
from collections.abc import Sequence
from pathlib import Path

from bench_lib.device.c_library import known_to_ldconfig
from bench_lib.errors import NotApplicable, Unavailable, UsageError
from bench_lib.stacking import cache, stacks
from bench_lib.stacking.stacks import StackEntry

HERE = "here"  # the name of the libnccl that this machine's Python would load
_PATTERN = "libnccl.so.*"


def of_stack(entry: StackEntry, wheels: Path | None = None) -> Path:
    """The libnccl of a stack; NotApplicable for one that can hold none, Unavailable when it has none."""
    if entry.kind == "cudart":
        raise NotApplicable(f"stack {entry.name} is a CUDA runtime alone and holds no NCCL")
    if is_component(entry):
        return component(entry, wheels)
    found = next(stacks.libraries(entry, _PATTERN), None)
    if found is None and entry.kind == "here":
        found = next(iter(known_to_ldconfig(r"libnccl\.so\.\d\S*")), None)
    if found is None:
        raise Unavailable(
            f"stack {entry.name} has no libnccl in nvidia/*/lib; install torch's CUDA build or a package "
            "nvidia-nccl, or name one with --nccl NAME=PATH"
        )
    return found.resolve()


def is_component(entry: StackEntry) -> bool:
    """Whether a stack is one NCCL and nothing else."""
    return entry.kind == "native" and set(entry.declared) == {"nccl"}


def label(entry: StackEntry) -> str:
    """`2.21.5+cu11`: the version of an NCCL and the CUDA major it is built for."""
    found = re.match(r"nvidia-nccl-cu(\d+)==", entry.requirements[0])
    return f"{entry.declared['nccl']}+cu{found[1]}" if found else entry.name


def at_hand(wheels: Path | None = None) -> dict[str, StackEntry]:
    """The NCCLs that can be used without fetching anything, by label, lowest version first."""
    from bench_lib.stacking import stock  # every pytest imports this module, for --nccl

    entries = [entry for entry in stacks.load_stacks(None).values() if is_component(entry)]
    there = [entry for entry in entries if stock.at_hand(entry, wheels)]
    return {label(entry): entry for entry in sorted(there, key=lambda one: _order(label(one)))}


def component(entry: StackEntry, wheels: Path | None = None) -> Path:
    """The library of a stack that is one NCCL: from the cache, else unpacked into it from a wheel."""
    return next(stacks.unpacked(entry, wheels, cache.libraries_only).glob(f"nvidia/*/lib/{_PATTERN}"))


def named(given: Sequence[str]) -> dict[str, Path]:
    """The libraries of --nccl NAME=PATH, by name; UsageError for one that is not written so or not there."""
    found: dict[str, Path] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not (equals and re.fullmatch(r"[\w.+-]+", name)):
            raise UsageError(f"--nccl {one!r} is not NAME=PATH, such as 2.21.5+cu11=/opt/nccl/libnccl.so.2")
        if not Path(path).is_file():
            raise UsageError(f"--nccl {name}: there is no file {path}; name a libnccl.so.2")
        if found.setdefault(name, Path(path).resolve()) != Path(path).resolve():
            raise UsageError(f"--nccl gives two libraries the name {name}; give each a name of its own")
    return found


def _order(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]
