"""Clients that share a pretended GPU, under a stand-in of the MPS daemon: it quits after every end."""

import os
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import fake_cublas
import fake_mps
import pyarrow.parquet as pq
import pytest

from bench_lib.errors import Crashed, CudaGainsError, Hung, NotApplicable, Unavailable, WrongResult
from bench_lib.mps import clients, control, daemon, keeper, sharing, work
from bench_lib.mps.clients import Clients, Window

ROOT = Path(__file__).parents[1]
WAYS = (sharing.TIME_SLICED, sharing.MPS)
UUID = "GPU-fa0a1a2a-3a4a-5a6a-7a8a-9aaabacada00"
VOLTA = (9, 0)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """The stand-in in this process's $PATH; its journal."""
    for name, value in fake_mps.environment(tmp_path / "bin").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "nobody"))
    return tmp_path / "bin" / "journal"


@pytest.fixture
def environment(fake_cuda, stand_in):
    """Of a session on the pretended GPU that finds the stand-in."""
    names = ("PATH", "FAKE_MPS_JOURNAL", "CUDA_MPS_PIPE_DIRECTORY")
    return {**fake_cuda, **{name: os.environ[name] for name in names}}


@pytest.fixture
def on_fake(fake_cuda, monkeypatch):
    """Processes that are started find the pretended GPU."""
    for name in ("LD_LIBRARY_PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, fake_cuda[name])
    return fake_cuda


def wait_for(holds, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.02)


def small(folder):
    return {"work": work.SMALL, "folder": str(folder)}


def of_ours(pipes=""):
    """Living processes of the suite's MPS family that were given these pipes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"bench_lib.mps" in command and pipes.encode() in command + variables:
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        ({"get_server_list": "12", "get_client_list 12": ""}, True),
        ({"get_server_list": ""}, True),
        ({"get_server_list": "12", "get_client_list 12": "99"}, False),
        ({"get_server_list": "12"}, False),  # a question that Ctrl-C ended says nothing of clients
        ({}, False),
    ],
)
def test_no_answer_is_not_no_client(tmp_path, answers, left):
    lines = "".join(f"'{asked}') echo '{answer}';;\n" for asked, answer in answers.items())
    stand_in = tmp_path / "control"
    stand_in.write_text(f'#!/bin/sh\nread asked\ncase "$asked" in\n{lines}*) exit 1;;\nesac\n')
    stand_in.chmod(0o755)
    assert control.Control(str(stand_in), tmp_path, tmp_path).no_client_left() == left


# --- the family, from its benchmark file to its end


FILE = "benchmarks/bench_mps.py"


def begin(tmp_path, environment, cases, *options):
    command = [sys.executable, "-m", "pytest", *cases, "-p", "no:cacheprovider", "--family", "mps"]
    command += ["--results", str(tmp_path / "results"), *options]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **streams)


def cases(tmp_path):
    files = (tmp_path / "results" / "local" / "cases").glob("*.parquet")
    return {row["case_id"]: row for file in files for row in pq.read_table(file).to_pylist()}


def test_both_ways_are_measured_in_turns_and_the_daemon_quits(environment, stand_in, tmp_path):
    asked = [f"{FILE}::bench_small_kernels[1-{way}-{metric}]" for way in WAYS for metric in sharing.METRICS]
    done = begin(tmp_path, environment, asked, "--quick")
    said, _ = done.communicate(timeout=300)
    assert done.returncode == 0, said
    found = cases(tmp_path)
    assert {row["status"] for row in found.values()} == {"ok"}
    assert {row["turns"] for row in found.values()} == {"mps-small_kernels-1"}
    assert len(found) == len(asked) == 6
    latency = found["mps/small_kernels[clients=1,metric=latency,sharing=mps]"]
    assert latency["n_samples"] == 5
    assert dict(latency["facts"])["latency.by_client"].endswith((" µs", " ms"))  # ms on a busy machine
    assert dict(latency["quantities"])["slowest_client_seconds"] > 0
    started, quitted = stand_in.read_text().splitlines()
    assert started.startswith(f"start on {UUID} in ")
    assert quitted == "quit with 0 clients left"
    assert not Path(started.rpartition(" ")[2]).parent.exists()


KILLED = """
import sys
from bench_lib.mps import control, sharing
made = sharing.Sharing(control.binary(), sys.argv[1], 1)
made.measured(1, {"work": "small_kernels", "folder": sys.argv[2]}, 1000, 0.2)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_the_session_ends_clients_leave_and_the_daemon_quits(environment, stand_in, tmp_path, number):
    """Ctrl-C ends a pytest that is at it; the other ends a process that has no time for anything."""
    if interrupted := number == signal.SIGINT:
        session = begin(tmp_path, environment, [FILE], "-k", "small")
    else:
        command = [sys.executable, "-c", KILLED, UUID, str(tmp_path)]
        session = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        wait_for(stand_in.read_text)
        pipes = stand_in.read_text().split()[-1]
        wait_for(lambda: len(of_ours(f"{pipes}\0")) == (4 if interrupted else 1))
        os.killpg(session.pid, number)  # as Ctrl-C at a terminal, for the whole group
        if interrupted:  # and once more while they leave
            wait_for(lambda: len(of_ours(f"{pipes}\0")) < 4)
            os.killpg(session.pid, number)
        session.communicate(timeout=300)
    finally:
        session.kill()
    assert session.returncode == (2 if interrupted else -number)
    wait_for(lambda: "quit" in stand_in.read_text())
    assert stand_in.read_text().splitlines()[1:] == ["quit with 0 clients left"]
    wait_for(lambda: not of_ours(str(Path(pipes).parent)))
    assert not Path(pipes).parent.exists()


def test_no_client_under_mps_is_no_measurement_of_it(on_fake, stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_MPS_BLIND", "1")
    made = sharing.Sharing(control.binary(), UUID, 1)
    try:
        found = made.measured(1, small(tmp_path), 3, 0.02)
        assert isinstance(found["mps"], Unavailable)
        assert "0 of 1 processes came under MPS" in str(found["mps"])
        assert set(found["time_sliced"]) == set(sharing.METRICS)
        assert made.measured(1, small(tmp_path), 3, 0.02) is found  # measured once
    finally:
        assert made.close() == ""
    assert stand_in.read_text().count("quit with 0 clients left") == 1


class Broken:
    """A daemon whose server does not come up."""

    environment = types.MappingProxyType({"FAKE_CUDA_INIT_ERROR": "805"})

    def told(self):
        return "its logs: server exited with status 1"


def test_clients_that_the_daemon_lets_down_are_no_fault_of_the_case(on_fake):
    with pytest.raises(Unavailable, match=r"client 1 of 1 \(under MPS\): .*805.*server exited with status 1"):
        sharing.under(Broken(), on_fake, 1)


# --- the daemon


def test_a_daemon_that_does_not_start_says_why_and_leaves_nothing(stand_in, monkeypatch):
    monkeypatch.setenv("FAKE_MPS_START_CODE", "3")
    monkeypatch.setattr(keeper, "CLIENTS_SECONDS", 0.1)
    made = daemon.short_folder()
    monkeypatch.setattr(daemon, "short_folder", lambda: made)
    with pytest.raises(Unavailable, match=r"ended with 3.*no permission.*nothing can be measured under MPS"):
        daemon.Daemon.start(control.binary(), UUID)
    assert not made.exists()


def test_a_daemon_that_does_not_quit_is_named_with_what_ends_it(stand_in, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_MPS_DEAF", str(tmp_path / "hears"))
    monkeypatch.setattr(keeper, "QUIT_SECONDS", 0.3)
    one = control.Control(control.binary(), *keeper.folders(daemon.short_folder()))
    assert keeper.start(one, UUID) == ""
    try:
        said = keeper.end(one)
        assert "still runs after 0 s (process " in said
        assert f"echo quit | CUDA_MPS_PIPE_DIRECTORY={one.pipes}" in said
        assert control.someone_elses(one.binary).startswith("an MPS daemon is already running (process ")
        with pytest.raises(Unavailable, match="already running"):
            sharing.check(UUID, VOLTA, {})
    finally:
        (tmp_path / "hears").touch()
        assert keeper.end(one) == ""
        shutil.rmtree(one.pipes.parent)
    assert control.someone_elses(one.binary) == ""


def test_the_daemon_of_a_host_answers_though_its_process_is_not_seen(stand_in, monkeypatch):
    one = control.Control(control.binary(), *keeper.folders(daemon.short_folder()))
    assert keeper.start(one, UUID) == ""
    try:
        monkeypatch.setattr(control, "processes", dict)
        variables = {"CUDA_MPS_PIPE_DIRECTORY": str(one.pipes)}
        assert f"already serving through {one.pipes}" in control.someone_elses(one.binary, variables)
        assert control.someone_elses(one.binary, {"CUDA_MPS_PIPE_DIRECTORY": str(one.logs)}) == ""
    finally:
        one.ask("quit")
        shutil.rmtree(one.pipes.parent)


def test_a_dead_daemon_that_nobody_reaped_is_no_daemon(tmp_path):
    for pid, line in ((7, ""), (8, "nvidia-cuda-mps-control\0-d\0")):
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "comm").write_text("nvidia-cuda-mps\n")
        (tmp_path / "proc" / str(pid) / "cmdline").write_text(line)
    assert control.processes(tmp_path) == {8: ""}


def test_the_path_of_its_sockets_is_short(monkeypatch, tmp_path):
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr(daemon, "_places", lambda: iter([str(deep), "/nowhere", "/tmp"]))
    made = daemon.short_folder()
    assert made.parent == Path("/tmp")
    assert not list(deep.iterdir())
    made.rmdir()
    monkeypatch.setattr(daemon, "_places", lambda: iter(["/nowhere"]))
    with pytest.raises(Unavailable, match="set TMPDIR to a short one"):
        daemon.short_folder()


@pytest.mark.parametrize(
    ("uuid", "capability", "settings", "error", "said"),
    [
        ("MIG-1", VOLTA, {}, NotApplicable, "under MIG"),
        (UUID, VOLTA, {"gpu.mig_mode": "on"}, NotApplicable, "under MIG"),
        (UUID, (6, 1), {}, NotApplicable, "before Volta"),
        (UUID, VOLTA, {"gpu.compute_mode": "exclusive-process"}, Unavailable, "this suite never does"),
    ],
)
def test_where_it_cannot_be_measured_a_sentence_says_why(stand_in, uuid, capability, settings, error, said):
    with pytest.raises(error, match=said):
        sharing.check(uuid, capability, settings)


def test_without_the_command_a_sentence_says_where_it_comes_from(monkeypatch):
    monkeypatch.setattr(control, "_PLACES", "/nowhere")
    with pytest.raises(Unavailable, match="comes with the driver"):
        control.binary({"PATH": "/nowhere"})


# --- clients


@pytest.fixture
def two(on_fake):
    made = Clients("time-sliced", on_fake, 2)
    yield made
    made.close()


def test_clients_begin_together_and_a_window_counts_all_of_them(two, tmp_path):
    two.prepare(2, small(tmp_path))
    window = two.window(2, work.SMALL, 0.05)
    assert len(window.requests) == 2
    assert min(map(len, window.requests)) > 2
    assert all(0 < elapsed < 1 for elapsed in window.elapsed)
    alone = two.window(1, work.SMALL, 0.05)
    assert len(alone.requests) == 1


def test_a_window_in_numbers():
    window = Window(((0.1,) * 10, (0.2,) * 5), (1.0, 1.0), late=False)
    assert window.per_request == pytest.approx(1 / 15)
    assert window.latency == pytest.approx(0.15)
    assert window.by_client == [0.1, 0.2]
    assert 0.1 < window.latency_p99 <= 0.2


def test_a_client_that_dies_costs_its_case_and_is_replaced(two, tmp_path):
    two.prepare(2, small(tmp_path))
    victim = two._children[1].pid
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(Crashed, match=r"client 2 of 2 \(time-sliced\) died: it was ended by SIGKILL"):
        two.window(2, work.SMALL, 0.02)
    two.prepare(2, small(tmp_path))
    assert len(two.window(2, work.SMALL, 0.02).requests) == 2
    assert two._children[1].pid != victim


def test_a_client_that_hangs_is_told_apart_and_ended_last(on_fake, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "_SLACK_SECONDS", 0.3)
    monkeypatch.setattr(clients, "_GOODBYE_SECONDS", 0.3)
    monkeypatch.setattr("bench_lib.mps.lines._TERM_SECONDS", 0.3)
    made = Clients("under MPS", on_fake, 1)
    made.prepare(1, small(tmp_path))
    pid = made._children[0].pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Hung, match=r"client 1 of 1 \(under MPS\): no answer within"):
        made.window(1, work.SMALL, 0.02)
    made.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_cuda_error_of_a_client_is_the_cases(on_fake, tmp_path):
    made = Clients("time-sliced", {**on_fake, "FAKE_CUDA_FAIL_LAUNCH_AFTER": "2"}, 1)
    with pytest.raises(CudaGainsError, match=r"client 1 of 1 .*CUDA error 719"):
        made.prepare(1, small(tmp_path))
    made.close()
    with pytest.raises(CudaGainsError, match="CUDA error 808"):
        Clients("under MPS", {**on_fake, "FAKE_CUDA_INIT_ERROR": "808"}, 1)


@pytest.mark.parametrize("wrong", [False, True])
def test_products_are_checked_in_every_window(fake_cuda_built, on_fake, tmp_path, wrong):
    library = fake_cublas.build(tmp_path)
    asked = {"work": work.GEMM, "rows": 24, "cublas": str(library)}
    asked["cublaslt"] = str(library.with_name("libcublasLt.so.12"))
    made = Clients("time-sliced", on_fake | ({"FAKE_CUBLAS_WRONG": "1"} if wrong else {}), 1)
    try:
        if wrong:
            with pytest.raises(WrongResult, match="the matrix product is off by"):
                made.prepare(1, asked)
        else:
            made.prepare(1, asked)
            assert made.window(1, work.GEMM, 0.02).per_request > 0
    finally:
        made.close()


def test_a_product_counts_its_work():
    assert work.flop(work.GEMM) == 10 * 2 * 1024**3
    assert work.flop(work.SMALL) is None
