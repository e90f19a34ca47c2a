"""The one list of all checks, in the order in which they are shown."""

from typing import NamedTuple

from bench_lib.doctor import (
    driver_checks,
    family_checks,
    gpu_checks,
    library_checks,
    machine_checks,
    timing_checks,
    torch_checks,
)
from bench_lib.doctor.finding import Check, Finding, State
from bench_lib.doctor.snapshot import Snapshot

GROUPS: dict[str, tuple[Check, ...]] = {
    "driver": driver_checks.CHECKS,
    "GPU": gpu_checks.CHECKS,
    "torch": torch_checks.CHECKS,
    "libraries": library_checks.CHECKS,
    "families": family_checks.CHECKS,
    "timing": timing_checks.CHECKS,
    "machine": machine_checks.CHECKS,
}


class Answered(NamedTuple):
    """A check with what it said."""

    group: str
    check: Check
    finding: Finding


def look(snapshot: Snapshot) -> list[Answered]:
    """Every check's finding."""
    return [
        Answered(group, check, check.look(snapshot)) for group, listed in GROUPS.items() for check in listed
    ]


def exit_code(answers: list[Answered]) -> int:
    """0, or 3 when one check fails."""
    return 3 if any(answer.finding.state is State.FAIL for answer in answers) else 0
