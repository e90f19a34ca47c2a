"""Settings of the whole process: read around a case, put back when it has changed them.

What is read are plain values by name. A torch that is not imported yet has the values it starts with.
"""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench_lib.convolution.precision import Flags

_ABSENT = object()
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
_FLAGS_OF_CUDNN = ("enabled", "benchmark", "deterministic", "benchmark_limit")
_AS_IMPORTED = {  # of a torch that a case itself imported; what depends on the machine is not here
    "torch default dtype": "torch.float32",
    "torch grad mode": True,
    "torch deterministic algorithms": (False, False),
    "torch cudnn.benchmark": False,
    "torch cudnn.deterministic": False,
    "torch cudnn.enabled": True,
}


@dataclass(frozen=True)
class Setting:
    """One setting: how it is read, and how it is put back."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def read() -> dict[str, Any]:
    """All settings by name; what cannot be read here is left out."""
    found: dict[str, Any] = {} if sys.modules.get("torch") else dict(_AS_IMPORTED)
    for setting in _all():
        with contextlib.suppress(OSError, AttributeError, RuntimeError):
            found[setting.name] = setting.read()
    return found


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The names of the settings that both hold, with other values.

    Variables that are new in the environment do not count: libraries set some when they are imported.
    """
    return {name for name in before.keys() & after.keys() if not _same(before[name], after[name])}


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, dict):
        return all(after.get(key) == value for key, value in before.items())
    return bool(before == after)


def put_back(found: Mapping[str, Any], names: set[str]) -> tuple[list[str], list[str]]:
    """Write settings back; sentences of what had been changed, and of what could not be put back."""
    now = read()
    changed: list[str] = []
    stuck: list[str] = []
    for setting in _all():
        if setting.name not in names:
            continue
        wanted = found[setting.name]
        what = f"{setting.name}{_from_to(wanted, now.get(setting.name, _ABSENT))}"
        try:
            setting.write(wanted)
            same = _same(wanted, setting.read())
        except (OSError, RuntimeError, ValueError, TypeError, AttributeError):
            same = False
        (changed if same else stuck).append(what)
    return changed, stuck


def _from_to(before: Any, after: Any) -> str:
    """Short values only: an environment may hold secrets."""
    told = [str(value) for value in (before, after)]
    plain = all(isinstance(value, str | bool | int | float) for value in (before, after))
    return f" from {told[0]} to {told[1]}" if plain and max(map(len, told)) < 40 else ""


def _all() -> Iterator[Setting]:
    yield Setting("the working folder", os.getcwd, os.chdir)
    yield Setting("environment variables", _environment, os.environ.update)
    if hasattr(os, "sched_setaffinity"):
        yield Setting(
            "the CPUs it may run on",
            lambda: os.sched_getaffinity(0),
            lambda cpus: os.sched_setaffinity(0, cpus),
        )
    yield Setting("the switch interval", sys.getswitchinterval, sys.setswitchinterval)
    yield Setting("the trace function", sys.gettrace, sys.settrace)
    yield Setting("the profile function", sys.getprofile, sys.setprofile)
    yield Setting("the garbage collector", gc.isenabled, lambda on: gc.enable() if on else gc.disable())
    yield Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield Setting("signal handlers", _handlers, _set_handlers)
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "backends"):
        yield from _of_torch(torch)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def _handlers() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _set_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _of_torch(torch: Any) -> Iterator[Setting]:
    yield Setting(
        "torch default dtype",
        lambda: str(torch.get_default_dtype()),
        lambda name: torch.set_default_dtype(getattr(torch, name.removeprefix("torch."))),
    )
    yield Setting("torch grad mode", torch.is_grad_enabled, torch.set_grad_enabled)
    yield Setting("torch number of threads", torch.get_num_threads, torch.set_num_threads)
    yield Setting(
        "torch deterministic algorithms",
        lambda: (
            bool(torch.are_deterministic_algorithms_enabled()),
            bool(torch.is_deterministic_algorithms_warn_only_enabled()),
        ),
        lambda modes: torch.use_deterministic_algorithms(modes[0], warn_only=modes[1]),
    )
    for flag in _FLAGS_OF_CUDNN:
        yield Setting(
            f"torch cudnn.{flag}",
            partial(getattr, torch.backends.cudnn, flag),
            partial(setattr, torch.backends.cudnn, flag),
        )
    yield Setting("torch TF32 and fp32 precision", lambda: Flags.read(torch), lambda f: f.write(torch))
