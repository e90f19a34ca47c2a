"""Talking to an MPS control daemon: its folders in, the servers and clients it knows out."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench_lib.errors import Unavailable
from bench_lib.identity.machine import ROOT, text

COMMAND = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_PLACES = "/usr/bin:/usr/local/bin:/usr/local/nvidia/bin"  # beyond $PATH: where drivers put it
_NAME = "nvidia-cuda-mps"  # the kernel keeps 15 letters of the daemon's and the servers' names
_USUAL = Path("/tmp/nvidia-mps")  # noqa: S108  the daemon's own choice where nobody says otherwise
_ANSWER_SECONDS = 10.0
_LOG_LINES = 3


def binary(variables: Mapping[str, str] = os.environ) -> str:
    """The path of nvidia-cuda-mps-control; Unavailable where there is none."""
    found = shutil.which(COMMAND, path=f"{variables.get('PATH', '')}:{_PLACES}")
    if found is None:
        raise Unavailable(
            f"{COMMAND} is not here; it comes with the driver (packages nvidia-compute-utils, "
            "nvidia-cuda-mps), and containers get it with the capability `utility`"
        )
    return found


def without_mps() -> dict[str, str]:
    """This process's variables without any that sets MPS up: limits of somebody else's are none of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}


@dataclass(frozen=True)
class Control:
    """The control command of one daemon, chosen by its folders."""

    binary: str
    pipes: Path
    logs: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables under which a process finds this daemon."""
        return {**without_mps(), PIPES: str(self.pipes), LOGS: str(self.logs)}

    def ask(self, command: str) -> str | None:
        """What the daemon answers; None where none answers."""
        try:
            done = subprocess.run(
                [self.binary],
                input=f"{command}\n",
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=_ANSWER_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    def clients(self) -> list[int]:
        """The processes that are clients of this daemon's servers now, by their numbers."""
        return [pid for server in self._listed("get_server_list") for pid in self._clients_of(server)]

    def no_client_left(self) -> bool:
        """Whether the daemon says of every server that it has no client; no answer says nothing."""
        servers = self.ask("get_server_list")
        if servers is None:
            return False
        answers = [self.ask(f"get_client_list {pid}") for pid in _numbers(servers)]
        return all(answer is not None and not _numbers(answer) for answer in answers)

    def told(self) -> str:
        """What the daemon says of its servers, and the last lines of its logs: why something is not."""
        servers = " ".join(map(str, self._listed("get_server_list"))) or "none"
        return f"its servers: {servers}; its logs: {last_words(self.logs)}"

    def _clients_of(self, server: int) -> list[int]:
        return self._listed(f"get_client_list {server}")

    def _listed(self, command: str) -> list[int]:
        return _numbers(self.ask(command) or "")


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdecimal()]


def last_words(logs: Path) -> str:
    """The last lines of each file of a folder, in one line."""
    lines = []
    for path in sorted(logs.glob("*")):
        with contextlib.suppress(OSError):
            said = [line.strip() for line in path.read_text(errors="replace").splitlines()]
            lines += [line for line in said if line][-_LOG_LINES:]
    return " / ".join(lines) or "nothing"


def processes(root: Path = ROOT) -> dict[int, str]:
    """The living MPS daemons and servers that can be seen: pid -> the pipe folder it has, "" unknown."""
    found = {}
    for folder in (root / "proc").glob("[0-9]*"):
        if text(folder / "comm") == _NAME and text(folder / "cmdline"):  # of the dead nothing is left there
            found[int(folder.name)] = _pipes_of(folder)
    return found


def _pipes_of(process: Path) -> str:
    with contextlib.suppress(OSError):
        for entry in (process / "environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == PIPES.encode():
                return os.fsdecode(value)
    return ""


def someone_elses(command: str, variables: Mapping[str, str] = os.environ) -> str:
    """A sentence on an MPS daemon that is already here and is none of ours, "" where there is none.

    Seen as a process, or (in a container that shares the host's pipes) by its answer.
    """
    mend = "its clients share the GPU with what is measured; end it with `echo quit | " + COMMAND + "`"
    if running := sorted(processes()):
        return f"an MPS daemon is already running (process {running[0]}): {mend} if it is yours"
    pipes = Path(variables.get(PIPES) or _USUAL)
    there = (pipes / "control").exists()
    if there and Control(command, pipes, pipes).ask("get_server_list") is not None:
        return f"an MPS daemon is already serving through {pipes}: {mend} if it is yours"
    return ""
