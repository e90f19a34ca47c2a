"""A stack in, its Snapshot out: files are read here, everything that can break is asked in children."""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench_lib.doctor import children
from bench_lib.doctor.children import Answer
from bench_lib.doctor.host import host
from bench_lib.doctor.process import process
from bench_lib.doctor.snapshot import (
    CudaDriver,
    Device,
    Distribution,
    GpuState,
    Library,
    Nvml,
    Python,
    Snapshot,
    Torch,
)
from bench_lib.doctor.variables import variables
from bench_lib.errors import UsageError
from bench_lib.running import preflight
from bench_lib.stacking import environments, stacks, stock
from bench_lib.stacking.environments import Environment
from bench_lib.stacking.stacks import PACKAGES, StackEntry

TIMEOUT_SECONDS = 30.0  # torch's import takes 2 to 10 s


def snapshot(
    entry: StackEntry, results: Path = Path("results"), timeout_seconds: float = TIMEOUT_SECONDS
) -> Snapshot:
    """Everything about a stack on this machine, in at most a little over `timeout_seconds`.

    Raises UsageError for a stack that was not created.
    """
    environment = _environment(entry)
    with ThreadPoolExecutor() as pool:
        asked = {
            name: pool.submit(
                children.ask,
                environment,
                f"bench_lib.doctor.inside_{name}",
                *((entry.name,) if name == "torch" else ()),
                timeout_seconds=timeout_seconds,
            )
            for name in ("torch", "python", "driver", "nvml")
        }
        known = of_this_process(entry, environment.variables, results)
        answers = {name: answer.result() for name, answer in asked.items()}
    torch = _torch(answers["torch"])
    return dataclasses.replace(
        known,
        cuda=torch.cuda or known.cuda,
        driver=_driver(answers["driver"]),
        nvml=_nvml(answers["nvml"]),
        torch=torch,
        python=_python(answers["python"], known.holds),
    )


def of_this_process(
    entry: StackEntry, environ: Mapping[str, str] = os.environ, results: Path = Path("results")
) -> Snapshot:
    """What is known without asking another process: files, variables, what is attached here."""
    by_path = entry.kind in ("cudart", "native")  # which load all by path
    wheels = [] if by_path else stacks.libraries(entry, "lib*.so.*")
    runtimes = [one for one in stacks.load_stacks().values() if one.kind == "cudart" and stock.at_hand(one)]
    return Snapshot(
        stack=entry.name,
        cuda=preflight.cuda_of(entry),
        has_kernels=preflight.has_kernels(entry),
        holds=tuple(name for name in PACKAGES if stacks.holds(entry, name)),
        sites=tuple(map(str, stacks.sites(entry))),
        runtimes=len(runtimes),
        mixed_wheels=preflight.mixed_wheels(stacks.sites(entry)),
        shadowing=preflight.shadowing(environ.get("LD_LIBRARY_PATH", ""), wheels),
        variables=variables(environ),
        host=host(results, environ),
        process=process(),
    )


def _environment(entry: StackEntry) -> Environment:
    if entry.kind == "here":
        return Environment(sys.executable, dict(os.environ))
    if entry.image is not None:
        raise UsageError(
            f"stack {entry.name} is an image, which is looked at from inside: "
            f"docker run --rm --gpus all {entry.image.name} cuda-gains doctor"
        )
    stock.require(entry)
    return environments.environment(entry)


def _made(kind: Any, answer: Answer, **more: Any) -> Any:
    """A dataclass of what a child said: fields it does not know are left out."""
    names = {field.name for field in dataclasses.fields(kind)}
    facts = {name: value for name, value in {**answer.facts, **more}.items() if name in names}
    lists = {name: tuple(value) for name, value in facts.items() if isinstance(value, list)}
    return kind(**{**facts, **lists, "child": answer.child})


def _driver(answer: Answer) -> CudaDriver:
    devices = tuple(Device(**device) for device in answer.facts.get("devices", ()))
    found: CudaDriver = _made(CudaDriver, answer, devices=devices)
    return found


def _nvml(answer: Answer) -> Nvml:
    gpus = tuple(_gpu_state(gpu) for gpu in answer.facts.get("gpus", ()))
    found: Nvml = _made(Nvml, answer, gpus=gpus)
    return found


def _gpu_state(facts: Mapping[str, Any]) -> GpuState:
    lists = {key: tuple(value) for key, value in facts.items() if isinstance(value, list)}
    whole: dict[str, Any] = {**facts, **lists}
    return GpuState(**whole)


def _torch(answer: Answer) -> Torch:
    libraries = {
        component: tuple(Library(*one) for one in listed)
        for component, listed in answer.facts.get("libraries", {}).items()
    }
    found: Torch = _made(Torch, answer, libraries=libraries)
    return found


def _python(answer: Answer, holds: Sequence[str]) -> Python:
    """What a stack does not hold is absent from it, whatever its Python has."""
    foreign = tuple(name for name in PACKAGES if name not in holds)
    distributions = [
        Distribution(**{**one, "requires": tuple(one["requires"])})
        for one in answer.facts.get("distributions", ())
        if not one["name"].startswith(foreign)
    ]
    found: Python = _made(Python, answer, distributions=tuple(distributions))
    return found
