"""A stack and the machine in, what makes its times doubtful out; Refused where it must not be measured."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench_lib.doctor import first
from bench_lib.doctor.finding import State
from bench_lib.errors import Refused
from bench_lib.observing.settings import PROFILER
from bench_lib.running import preflight
from bench_lib.running.options import Options
from bench_lib.running.target import CPU, Target
from bench_lib.stacking import environments, stock
from bench_lib.stacking.stacks import StackEntry


@dataclass(frozen=True)
class Doubts:
    """What makes the times of a run doubtful: as sentences, and as they are stored with it."""

    sentences: tuple[str, ...] = ()
    stored: Mapping[str, str] = field(default_factory=dict)


def look(stack: StackEntry, options: Options, target: Target) -> Doubts:
    """Ask the stack, the doctor and the GPU before the first case.

    Raises UsageError for a stack that is not here, Refused where nothing true can be measured.
    """
    environments.require(stack, os.environ)
    stock.require(stack, options.wheels)
    found = preflight.findings(stack, target.detected)
    if fatal := [finding.sentence for finding in found if finding.fatal]:
        raise Refused(f"stack {stack.name}: {fatal[0]}")
    doctor = first.look(options.device == CPU)
    profiler = doctor.pop("profiler", None) if options.nvtx else None
    if wrong := [finding.sentence for finding in doctor.values() if finding.state is State.FAIL]:
        raise Refused(wrong[0])
    of_stack = [finding.sentence for finding in found]
    sentences = [*of_stack, *(finding.sentence for finding in doctor.values())]
    stored = {
        f"doctor.{name}": finding.found for name, finding in doctor.items() if name not in first.PASSING
    }
    if profiler is not None:
        sentences.append(f"{profiler.found}: these times hold its share, and are for looking at")
        stored[PROFILER] = profiler.found
    if of_stack:
        stored["doctor.stack"] = "; ".join(of_stack)
    if others := target.telemetry.other_processes():
        stored["doctor.other-processes"] = str(others)
    return Doubts(tuple(sentences), stored)
