"""Stacks of kind `container`, with a stand-in for the engine that really runs what is inside, here."""

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from plugin_runs import INI, rows
from rich.console import Console
from stand_in_engine import IMAGE_ID, Daemon, StandIn, only, values
from typer.testing import CliRunner

from bench_lib.campaigns import campaign, campaign_containers
from bench_lib.campaigns.plan import Plan
from bench_lib.cli import app
from bench_lib.containers import command, engine
from bench_lib.containers.image import Image
from bench_lib.device import gpu_lock
from bench_lib.errors import Unavailable, UsageError
from bench_lib.stacking import stacks, stock

STACK = '["boxed"]\nkind = "container"\nimage = "suite:1"\ndeclared = {}\n'
BENCH = """
import os, time
from bench_lib.model import Series
FAMILY = "made"
MARGIN = 0.05
def bench_seen(bench):
    for name in ("NCCL_DEBUG", "AWS_SECRET_ACCESS_KEY", "NCCL_TOKEN", "LD_LIBRARY_PATH", "GIVEN", "HOME"):
        bench.fact(name, os.environ.get(name, "absent"))
    bench.fact("cwd", os.getcwd())
    bench.record(Series((1.0,)))
"""
HANGS = "def bench_hang(bench):\n    open({mark!r}, 'w').close()\n    time.sleep(600)\n"


class Kit:
    """A folder with a benchmark file, a stacks file, a stand-in engine, and campaigns over them."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, *engines: str) -> None:
        self.home = home
        self.engine = StandIn(home / "engine", *engines)
        self.engine.has("suite:1")
        for name in ("XDG_CACHE_HOME", "CUDA_GAINS_STACKS"):
            monkeypatch.setenv(name, str(home / name.lower()))
        monkeypatch.setenv("PATH", only(self.engine.path))
        monkeypatch.delenv("CUDA_GAINS_STACK", raising=False)
        self.write(STACK)
        (home / "made").mkdir()
        (home / "made" / "pytest.ini").write_text(INI)
        self.bench(BENCH)

    def write(self, text: str) -> None:
        Path(os.environ["CUDA_GAINS_STACKS"]).write_text(text)

    def bench(self, text: str) -> None:
        (self.home / "made" / "bench_made.py").write_text(text)

    def plan(self, **changes: Any) -> Plan:
        given: dict[str, Any] = {"campaign": "c", "results": self.home / "results", "stacks": ("boxed",)}
        given |= {"rounds": 1, "null": False, "device": "cpu", "benchmarks": self.home / "made"}
        return Plan(**given | changes)

    def run(self, **changes: Any) -> tuple[int, str]:
        output = io.StringIO()
        code = campaign.run(self.plan(**changes), Console(file=output, width=400))
        return code, output.getvalue()

    def table(self, name: str) -> list[dict[str, Any]]:
        return rows(self.home / "results/c", name)


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    return Kit(tmp_path, monkeypatch, "docker")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """A campaign of one round and two containers, with secrets around it."""
    with pytest.MonkeyPatch.context() as patch:
        kit = Kit(tmp_path_factory.mktemp("measured"), patch, "docker")
        patch.setenv("NCCL_DEBUG", "WARN")
        patch.setenv("NCCL_TOKEN", "a-secret-of-somebody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
        patch.setenv("GIVEN", "to processes of the host alone")
        code, said = kit.run(null=True)
        assert code == 0, said
        yield kit


def test_a_campaign_measures_in_containers(measured: Kit) -> None:
    rows = measured.table("cases")
    assert [(row["op"], row["status"]) for row in rows] == [("seen", "ok")] * 2
    facts = dict(rows[0]["facts"])
    assert facts["NCCL_DEBUG"] == "WARN"
    absent = ("AWS_SECRET_ACCESS_KEY", "NCCL_TOKEN", "LD_LIBRARY_PATH", "GIVEN")
    assert {facts[name] for name in absent} == {"absent"}
    assert (facts["HOME"], facts["cwd"]) == ("/tmp", "/tmp")
    runs = sorted(measured.table("runs"), key=lambda run: run["started_at"])
    assert sorted(run["arm"] for run in runs) == ["boxed", "boxed#2"]
    assert all(dict(run["settings"])["image"] == IMAGE_ID for run in runs)
    ended = [words[-1] for words in measured.engine.asked("rm")]
    assert ended == [f"cuda-gains-{run['run_id']}" for run in runs]


def test_what_a_container_is_started_with(measured: Kit) -> None:
    asking, *started = measured.engine.asked("run")  # the first one only asks for versions
    assert len(started) == 2
    assert "secret" not in str([asking, *started])
    words = started[0][: started[0].index("suite:1")]
    assert {"--rm", "--pull=never", "--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(words)
    assert "--shm-size=8g" in words
    assert values(words, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert values(words, "--hostname") == [socket.gethostname()]  # the runs of a round are of one host
    assert not {"--gpus", "--device", "--privileged", "--network", "--ipc"} & set(words)  # of the CPU
    named = values(words, "--env")
    by_value = {name.partition("=")[0] for name in named if "=" in name}
    assert by_value == {"HOME", "USER", "XDG_CACHE_HOME"}
    assert {"CUDA_GAINS_TASK", "CUDA_GAINS_STACK", "CUDA_GAINS_STACKS", "PYTHONPATH"} <= set(named)


def test_what_of_the_host_a_container_sees(measured: Kit) -> None:
    words, home = measured.engine.asked("run")[-1], measured.home
    mounts = dict(place.split(":", 1) for place in values(words, "--volume"))
    assert all(rest.removesuffix(":ro") == place for place, rest in mounts.items())  # at its own path
    writable = {place for place, rest in mounts.items() if not rest.endswith(":ro")}
    assert writable == {str(home / "results/c"), str(home / "xdg_cache_home/cuda-gains")}
    read = {Path(place) for place in mounts.keys() - writable}
    suite, task = Path(stacks.__file__).parents[1], next(place for place in read if place.name == "task.json")
    made = home / "made"
    assert read == {made, made / "pytest.ini", suite, home / "cuda_gains_stacks", task}


GPU = {
    "docker": ["--gpus", "all"],
    "podman": ["--device", "nvidia.com/gpu=all"],
}


@pytest.mark.parametrize("name", GPU)
def test_gpus_and_users_by_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kit = Kit(tmp_path, monkeypatch, "docker", "podman")
    kit.write(STACK + f'engine = "{name}"\nshm_size = "32g"\npython = "python3.11"\n')
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    started = campaign_containers.process(kit.plan(device="cuda"), stacks.stack("boxed"), "r", tmp_path / "t")
    words = list(started.command)
    assert words[0] == str(kit.engine.path / name)
    at = words.index(GPU[name][0])
    assert words[at : at + 2] == GPU[name]
    of_podman = {"--userns=keep-id", "--security-opt=label=disable"}
    assert of_podman & set(words) == (of_podman if name == "podman" else set())
    assert "--shm-size=32g" in words
    assert values(words, "--entrypoint") == ["python3.11"]
    image = words.index("suite:1")
    assert words[image + 1 : image + 5] == [
        *("-m", "bench_lib.containers.inside"),
        *(str(tmp_path / "results/c/.lock"), "-m"),
    ]


def test_the_words_are_those_of_the_real_docker(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = shutil.which("docker", path="/usr/local/bin:/usr/bin")
    if docker is None:
        pytest.skip("no docker here whose words could be asked")
    box = command.Container(Image("suite:1"), "c", gpus=True, readable=(kit.home,))
    line = box.command(["-c", "pass"], {"NCCL_DEBUG": "WARN"})
    variables = {"DOCKER_HOST": f"unix://{kit.home}/none.sock", "HOME": str(kit.home), "PATH": ""}
    done = subprocess.run([docker, *line[1:]], env=variables, capture_output=True, text=True, check=False)
    assert "annot connect to the Docker daemon" in done.stderr  # having understood every word
    line.insert(2, "--no-such-option")
    wrong = subprocess.run([docker, *line[1:]], env=variables, capture_output=True, text=True, check=False)
    assert "unknown flag: --no-such-option" in wrong.stderr


def test_no_engine_no_image_no_daemon_and_no_gpu_are_a_sentence_each(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**changes: Any) -> str:
        with pytest.raises(UsageError) as caught:
            kit.run(**changes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    monkeypatch.setenv("ENGINE_SAYS", "no gpu")
    campaign_containers.require_gpus(kit.plan())  # the CPU needs none
    assert refused(device="cuda") == (
        'docker gives stack boxed no GPU (docker: could not select device driver "" with capabilities: '
        "[[gpu]]); install the NVIDIA Container Toolkit on this host, or measure the CPU with --device cpu"
    )
    kit.write(STACK + 'python = "python9"\n')
    assert refused() == (
        "docker starts no container of stack boxed (docker: exec: 'python9': executable file not found in "
        "$PATH); correct its entry or its image, or mend docker"
    )
    kit.write(STACK)
    monkeypatch.setenv("ENGINE_SAYS", "no daemon")
    assert re.fullmatch(r"docker does not answer \(Cannot connect .*\); start it, or let .*", refused())
    monkeypatch.setenv("ENGINE_SAYS", "")
    kit.engine.has("other:1")
    assert refused() == (
        "image suite:1 of stack boxed is not here; build it, or fetch it with `docker pull suite:1`"
    )
    (kit.engine.path / "docker").unlink()
    assert refused() == "no docker or podman in PATH to run the image suite:1; install one"


def test_it_is_listed_shown_created_and_what_it_declares_is_asked(kit: Kit) -> None:
    def said(*words: str) -> str:
        result = CliRunner().invoke(app, ["stacks", *words])
        return result.output if result.exit_code == 0 else str(result.exception)

    dockerfile = kit.home / "Dockerfile"
    kit.engine.has("")
    kit.write(STACK.replace("{}", '{ numpy = "0.1" }') + 'dockerfile = "Dockerfile"\ncontext = "made"\n')
    assert re.search(r"boxed +container +image suite:1 +no", said("list"))
    assert "is not here; build it with `cuda-gains stacks create boxed`" in said("show", "boxed")
    assert said("create", "boxed") == f"there is no {dockerfile}; correct `dockerfile` of the image suite:1"
    dockerfile.write_text("FROM scratch\n")
    with pytest.raises(UsageError, match=r"^stack boxed declares numpy 0\.1, but \d.* is loaded"):
        stock.create("boxed")
    (words,) = kit.engine.asked("build")
    assert words[2:] == ["--file", str(dockerfile), "--tag", "suite:1", str(kit.home / "made")]

    kit.write(STACK + 'dockerfile = "Dockerfile"\n')
    assert said("create", "boxed").splitlines()[-1] == "boxed: suite:1"
    assert len(kit.engine.asked("build")) == 1  # it was there
    assert re.search(r"boxed +container +image suite:1 +yes", said("list"))
    shown = said("show", "boxed")
    assert IMAGE_ID in shown
    assert "what is declared is what is there" in shown


def test_a_build_that_fails_says_its_last_line(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.engine.has("")
    kit.write(STACK + 'dockerfile = "Dockerfile"\n')
    (kit.home / "Dockerfile").write_text("FROM scratch\n")
    monkeypatch.setenv("ENGINE_SAYS", "no build")
    with pytest.raises(Unavailable, match=r"^docker could not build suite:1 .*\(failed to solve: "):
        stock.create("boxed")
    monkeypatch.setenv("ENGINE_SAYS", "no daemon")
    with pytest.raises(UsageError, match=r"^docker does not answer \(Cannot connect "):
        stock.create("boxed")
    assert "no; docker does not answer (Cannot connect" in stock.described("boxed")["here"]


def test_kill_9_of_a_campaign_leaves_nothing_in_its_container(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No signal reaches the container then, and its engine would let it run on."""
    kit.bench(BENCH + HANGS.format(mark=str(kit.home / "begun")))
    words = ["run", "--stack", "boxed", "--rounds", "1", "--no-null", "--campaign", "c", "--device", "cpu"]
    words += ["--benchmarks", str(kit.home / "made"), "--results", str(kit.home / "results")]
    line = [sys.executable, "-c", "from bench_lib.cli import main; main()", *words]
    with contextlib.closing(Daemon(kit.home)) as daemon:
        monkeypatch.setenv("ENGINE_DAEMON", daemon.address)
        child = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _until(lambda: (kit.home / "begun").exists())
        child.send_signal(signal.SIGKILL)
        child.wait()
        _until(lambda: not [told for told in _processes() if str(kit.home / "results") in told])


CHILD = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
print("begun", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 7), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_a_signal_reaches_what_runs_inside(number: signal.Signals, code: int) -> None:
    """An engine gives it to the first process of a container alone; its exit code is that of what ran."""
    line = [sys.executable, "-m", "bench_lib.containers.inside", "", "-c", CHILD]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        child.send_signal(number)
        assert child.wait(10) == code


def _until(holds: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _processes() -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


WRONG = {
    'image = "Suite 1"': "has image 'Suite 1', expected NAME:TAG",
    'image = "-v"': "has image '-v', expected NAME:TAG",
    'image = "suite:1"\nengine = "dockr"': "has engine 'dockr', expected one of docker, podman",
    'image = "suite:1"\nshm_size = "lots"': "has shm_size 'lots', expected a size",
    'image = "suite:1"\ncontext = "."': "has a context and no dockerfile",
    'image = "suite:1"\nimages = "x"': "has the unknown key 'images'; did you mean 'image'?",
    'image = "suite:1"\nrequirements = []': "has the unknown key 'requirements'",
    "": "lacks the key 'image', which kind 'container' needs",
}


@pytest.mark.parametrize("text", WRONG)
def test_an_entry_is_read_strictly(tmp_path: Path, text: str) -> None:
    (tmp_path / "stacks.toml").write_text(f'[a]\nkind = "container"\ndeclared = {{}}\n{text}\n')
    with pytest.raises(UsageError, match=re.escape(WRONG[text])):
        stacks.load_stacks(tmp_path / "stacks.toml")


def test_the_locks_of_the_gpus_are_shared_with_the_host(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpus/0000:01:00.0").mkdir(parents=True)
    text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t GPU-12ab\nVideo BIOS: \t 96\n"
    (tmp_path / "gpus/0000:01:00.0/information").write_text(text)
    (file,) = campaign_containers.lock_files(tmp_path, tmp_path / "gpus")
    monkeypatch.setenv("CUDA_GAINS_LOCK_DIR", str(tmp_path))
    with gpu_lock.lock("GPU-12ab") as held:
        assert held.path == file
    assert file.stat().st_mode & 0o777 == 0o666
    assert campaign_containers.lock_files(tmp_path, tmp_path / "gpus") == (file,)  # and a second time
    started = campaign_containers.process(kit.plan(), stacks.stack("boxed"), "r", tmp_path / "t")
    assert f"{tmp_path}:{tmp_path}" in values(list(started.command), "--volume")


def test_what_a_host_has_decides_whether_a_gpu_is_asked_for(tmp_path: Path) -> None:
    assert not engine.host_has_gpu(tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert engine.host_has_gpu(tmp_path)
