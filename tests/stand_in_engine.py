"""A stand-in for docker and podman: a program in PATH that records its words and runs the inner command here.

It lets in the variables that are named to it and no others, starts in the working directory that it is given,
and insists that every mounted path is there. $ENGINE_SAYS makes it fail as a real one does; with
$ENGINE_DAEMON what is inside runs below another process.
"""

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

IMAGE_ID = "sha256:0123456789abcdef"
SOURCE = """#!{python}
import json, os, pathlib, subprocess, sys
words, home = sys.argv[1:], pathlib.Path({home!r})
with (home / "words.jsonl").open("a") as stream:
    stream.write(json.dumps([pathlib.Path(sys.argv[0]).name, *words]) + "\\n")
says = os.environ.get("ENGINE_SAYS", "")
if says == "no daemon":
    sys.exit("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?")
images = (home / "images").read_text().split()
if words[:2] == ["image", "inspect"]:
    print("{image}" if words[-1] in images else "[]")
    sys.exit(0 if words[-1] in images else "Error response from daemon: No such image: " + words[-1])
if words[0] == "build":
    print("Step 1/1 : FROM scratch")
    if says == "no build":
        sys.exit("failed to solve: nvidia/cuda: not found")
    (home / "images").write_text(" ".join([*images, words[words.index("--tag") + 1]]))
    sys.exit(0)
if words[0] == "rm":
    sys.exit(0)
VALUED = ("--name", "--hostname", "--user", "--env", "--workdir", "--volume", "--entrypoint", "--gpus",
          "--device", "--security-opt")
inner, folder, at = {{"PATH": os.environ["PATH"]}}, "/", 1
while words[at].startswith("-"):
    option, value = words[at], words[at + 1] if words[at] in VALUED else ""
    at += 2 if option in VALUED else 1
    if option == "--env":
        name, given, text = value.partition("=")
        if given or name in os.environ:
            inner[name] = text if given else os.environ[name]
    elif option == "--volume":
        assert pathlib.Path(value.split(":")[0]).exists(), value
    elif option == "--workdir":
        folder = value
    elif option == "--entrypoint":
        program = value
    elif option in ("--gpus", "--device") and says == "no gpu":
        sys.stderr.write('docker: could not select device driver "" with capabilities: [[gpu]]\\n')
        sys.stderr.write("\\nRun 'docker run --help' for more information\\n")
        sys.exit(125)
if program not in ("python", "python3"):
    sys.stderr.write(f"docker: exec: {{program!r}}: executable file not found in $PATH\\n")
    sys.exit(127)
line = ["{python}", *words[at + 1:]]
if "ENGINE_DAEMON" in os.environ:
    from multiprocessing.connection import Client
    with Client(os.environ["ENGINE_DAEMON"]) as daemon:
        daemon.send((line, folder, inner))
        code, said = daemon.recv()
    print(said, end="")
    sys.exit(code)
os.chdir(folder)
os.execvpe(line[0], line, inner)
"""


class StandIn:
    """The stand-in in a folder of its own, by the names it is given; put `path` into PATH."""

    def __init__(self, home: Path, *names: str) -> None:
        self.home, self.path = home, home / "bin"
        self.path.mkdir(parents=True)
        for name in names:
            program = self.path / name
            program.write_text(SOURCE.format(python=sys.executable, home=str(home), image=IMAGE_ID))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.has("")

    def has(self, *images: str) -> None:
        (self.home / "images").write_text(" ".join(images))

    def asked(self, verb: str) -> list[list[str]]:
        """All that it was asked with this first word, its own name before it."""
        file = self.home / "words.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [words for words in map(json.loads, lines) if words[1] == verb]


class Daemon:
    """Runs containers in a process that is no child of the one that asks for them, as a real engine does."""

    def __init__(self, home: Path) -> None:
        self.address = str(home / "daemon")
        self._listener = Listener(self.address)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: Any) -> None:
        line, folder, variables = connection.recv()
        done = subprocess.run(line, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=False)
        with contextlib.suppress(OSError):  # whoever asked is gone
            connection.send((done.returncode, done.stdout))


def values(words: list[str], option: str) -> list[str]:
    """What an option was given, each time."""
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def only(path: Path) -> str:
    """A PATH with this folder and what a process needs, but no engine of this machine."""
    folders = [folder for folder in os.environ["PATH"].split(":") if not _has_engine(Path(folder))]
    return ":".join([str(path), *folders])


def _has_engine(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("docker", "podman"))
