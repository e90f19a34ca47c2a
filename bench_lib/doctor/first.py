"""The part of the doctor that a run asks before its first case: in its own process, in milliseconds."""

import os
from collections.abc import Mapping
from pathlib import Path

from bench_lib.doctor import machine_checks, timing_checks
from bench_lib.doctor.finding import Finding, State
from bench_lib.doctor.host import host
from bench_lib.doctor.process import process
from bench_lib.doctor.snapshot import Snapshot
from bench_lib.doctor.variables import variables
from bench_lib.identity.machine import ROOT

_OF_THE_GPU = ("CUDA_", "NVTX_", "NCCL_")
PASSING = frozenset({"load"})  # tells of this moment alone, so it is no property of the run


def look(on_cpu: bool = False, environ: Mapping[str, str] = os.environ) -> dict[str, Finding]:
    """By check, what would make this run's results wrong (`fail`) or may move them (`warn`).

    Where the CPU was asked for, what only CUDA reads does not matter.
    """
    kept = {
        name: value
        for name, value in variables(environ).items()
        if not (on_cpu and name.startswith(_OF_THE_GPU))
    }
    snapshot = Snapshot(variables=kept, host=host(Path(), environ), process=process())
    listed = (*timing_checks.CHECKS, *machine_checks.CHECKS)
    found = {check.name: check.look(snapshot) for check in listed}
    return {name: one for name, one in found.items() if one.state in (State.FAIL, State.WARN)}


def busy(root: Path = ROOT) -> str:
    """The doctor's sentence on a machine that does other work at this moment; "" on an idle one."""
    found = machine_checks.load(Snapshot(host=host(Path(), {}, root)))
    return found.sentence if found.state is State.WARN else ""
