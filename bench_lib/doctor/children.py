"""Ask a process of its own, and come back in time whatever it does: it may hang, crash or fork.

A child prints lines of JSON, {"doctor": {...}}, as it learns things; what it said before it died counts.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from bench_lib.doctor.snapshot import Child
from bench_lib.doctor.speaking import KEY
from bench_lib.processes.ended import how_it_ended
from bench_lib.stacking.environments import Environment

_REAP_SECONDS = 2.0  # a process that waits in a driver cannot even be killed
_FRAME = re.compile(r'^\s+File "(.+)", line (\d+)', re.MULTILINE)


class Answer(NamedTuple):
    """What a child said, and how it ended."""

    facts: Mapping[str, Any]
    child: Child


def ask(environment: Environment, module: str, *arguments: str, timeout_seconds: float) -> Answer:
    """Run `python -m MODULE SECONDS ARGUMENTS` in an environment. Never raises, never waits longer."""
    given = str(0.5 * timeout_seconds)  # it tells where it hangs before it is ended
    command = [environment.python, "-P", "-m", module, given, *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command,
                env=dict(environment.variables),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            return Answer({}, Child(f"cannot be started: {error.strerror} ({environment.python})"))
        late = _wait(process, timeout_seconds)
        facts, errors = _facts(_read(out)), _read(err)
    problem = f"did not answer within {timeout_seconds:g} s" if late else _problem(process, errors)
    where = ":".join(found.groups()) if problem and (found := _FRAME.search(errors)) else ""
    return Answer(facts, Child(problem, str(facts.get("stage", "")) if problem else "", where))


def _wait(process: "subprocess.Popen[bytes]", timeout_seconds: float) -> bool:
    """Wait for the child's end, or end it with all that it started; whether it was too late."""
    try:
        process.wait(timeout_seconds)
        late = False
    except subprocess.TimeoutExpired:
        late = True
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_SECONDS)
    return late


def _read(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode(errors="replace"))


def _facts(text: str) -> dict[str, Any]:
    """All that it said; libraries may print lines of their own between."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            found.update(json.loads(line).get(KEY, {}))
    return found


def _problem(process: "subprocess.Popen[bytes]", errors: str) -> str:
    code = process.returncode
    if not code:
        return ""
    if code < 0:
        return how_it_ended(code)
    last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "it said nothing")
    return f"ended with {code}: {last}"
