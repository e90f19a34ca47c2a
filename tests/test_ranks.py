"""Ranks: asked together, in real processes over gloo; what dies, hangs or disagrees ends all of them."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Client
from pathlib import Path
from types import SimpleNamespace

import pytest
import rank_handlers

from bench_lib.errors import Crashed, CudaGainsError, Hung, Refused, UsageError, WrongResult
from bench_lib.model import Flag, Timing
from bench_lib.ranks import interconnect, joining, preflight
from bench_lib.ranks.group import Ranks
from bench_lib.ranks.joining import Joined, RemoteSeat, Seats, refuse_campaign
from bench_lib.ranks.life import Make
from bench_lib.ranks.member import Facts, Place, Spec
from bench_lib.ranks.seat import Lost
from bench_lib.ranks.timing import Sampled, slowest
from bench_lib.ranks.world import World
from bench_lib.timing.timer import Sample

SECONDS = 30.0


@pytest.fixture(scope="module")
def pair():
    """Two ranks over gloo, for all tests here: a fault ends them, the next request starts new ones."""
    with Ranks(World(), rank_handlers.make, size=2, backend="gloo") as ranks:
        yield ranks


def gone(pid, seconds=5):
    """Whether a process has ended; the test's own children may still be zombies."""
    for _ in range(1 + 10 * seconds):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_all_ranks_answer_in_their_order(pair):
    assert pair.ask("sum", SECONDS) == [[3.0] * 4] * 2
    assert [fact.rank for fact in pair.facts] == [0, 1]
    assert all(seconds > 0 for seconds in pair.init_seconds)
    assert pair.interconnect == "host"
    assert pair.topology == "2 ranks on 1 host"
    assert len(set(pair.ask("pid", SECONDS))) == 2


def test_four_ranks_and_the_arguments_of_their_handler():
    with Ranks(World(), rank_handlers.make, 10, size=4, backend="gloo") as ranks:
        assert ranks.ask("sum", SECONDS) == [[100.0] * 4] * 4
        pids = ranks.ask("pid", SECONDS)
    assert all(map(gone, pids))


@pytest.mark.parametrize(("request_", "words"), [("die", "SIGKILL"), ("exit", "exit code 7")])
def test_a_rank_that_dies_ends_all_at_once(pair, request_, words):
    pids = pair.ask("pid", SECONDS)
    begin = time.monotonic()
    with pytest.raises(Crashed) as error:
        pair.ask(request_, SECONDS)
    assert time.monotonic() - begin < SECONDS  # and not when the request is overdue
    assert f"rank 1 of 2 on {pair.facts[0].host}" in str(error.value)
    assert words in str(error.value).splitlines()[0]
    assert ("the last words of rank 1" in str(error.value)) == (request_ == "die")
    assert all(map(gone, pids))
    assert pair.ask("sum", SECONDS) == [[3.0] * 4] * 2  # fresh ones


def test_a_rank_that_hangs_ends_all_within_the_time_and_its_stack_is_kept(pair):
    pids = pair.ask("pid", SECONDS)
    begin = time.monotonic()
    with pytest.raises(Hung, match=r"no answer of rank 0, 1 of 2 .* within 1 s, all are ended") as error:
        pair.ask("hang", 1)
    assert time.monotonic() - begin < 60  # it would hang for 1000
    assert "rank_handlers.py" in str(error.value)
    assert "[rank 1]" in str(error.value)
    assert all(map(gone, pids))


def test_ranks_that_disagree_end_and_what_one_raised_is_told(pair):
    with pytest.raises(CudaGainsError, match=r"rank 1 of 2 .*ValueError: rank 1 does not like it"):
        pair.ask("raise", SECONDS)
    assert not pair.started


def test_a_wrong_result_of_one_rank_ends_them_and_of_all_does_not(pair):
    pids = pair.ask("pid", SECONDS)
    with pytest.raises(WrongResult, match=r"^element 3 is 4, expected 3$"):
        pair.ask("all wrong", SECONDS)
    assert pair.ask("pid", SECONDS) == pids
    with pytest.raises(WrongResult, match=r"rank 1 of 2 .*element 3 is 4"):
        pair.ask("wrong", SECONDS)
    assert all(map(gone, pids))


def test_processes_that_a_rank_started_end_with_it_and_its_variables_are_set(monkeypatch):
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    with Ranks(World(), rank_handlers.make, size=2, variables={"NCCL_DEBUG": "INFO"}) as ranks:
        assert ranks.ask("sum", SECONDS) == ["no torch"] * 2
        assert ranks.ask("variable", SECONDS) == ["INFO"] * 2
        children = ranks.ask("child", SECONDS)
    assert all(map(gone, children))


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "VERSION")
    with Ranks(World(), rank_handlers.make, size=1, variables={"NCCL_DEBUG": "INFO"}) as ranks:
        assert ranks.ask("variable", SECONDS) == ["VERSION"]


_KILLED = """
import threading
import rank_handlers
from bench_lib.ranks.group import Ranks
from bench_lib.ranks.world import World
from bench_lib.processes.worker import Worker
if __name__ == "__main__":
    ranks = [Ranks(World(), rank_handlers.make, size=2, backend=backend) for backend in ("", "gloo")]
    worker = Worker(rank_handlers.make_worker)
    print(*(pid for one in ranks for pid in one.ask("pid", 60)), worker.ask("pid", 60), flush=True)
    for one in (*ranks, worker):  # busy: they do not look at their connection
        threading.Thread(target=one.ask, args=("hang", 1000)).start()
"""


def test_ranks_and_workers_die_with_the_process_that_started_them():
    command = [sys.executable, "-c", _KILLED]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        pids = parent.stdout.readline().split()
        assert len(pids) == 5
        time.sleep(0.5)  # until they are
        assert not any(gone(pid, seconds=0) for pid in (pids[1], pids[3], pids[4]))
        parent.send_signal(signal.SIGKILL)
    assert all(map(gone, pids))


# --- under torchrun


@pytest.fixture
def remote():
    """A seat at another process of torchrun's, which here is a thread."""
    ours, control = multiprocessing.Pipe()
    seat, order = multiprocessing.Pipe()
    thread = threading.Thread(target=Seats(control, lambda: order).serve)
    thread.start()
    ours.send("seat")
    yield RemoteSeat(seat)
    ours.close()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize("fault", ["die", "hang"])
def test_a_rank_elsewhere_answers_until_it_does_not(remote, fault):
    remote.start(Spec(Place(1, 2, 0, 1, "cpu"), rank_handlers.make))
    failed, facts = remote.hear()
    assert (failed, facts.rank) == (False, 1)
    remote.say(Make())
    assert remote.hear() == (False, None)
    remote.say("pid")
    _, pid = remote.hear()
    remote.say(fault)
    if fault == "die":
        with pytest.raises(Lost, match="was ended by SIGKILL"):
            remote.hear()
    log = remote.end(stacks=True)
    assert {"die": "the last words of rank 1", "hang": "in live"}[fault] in log
    assert gone(pid)


def test_strangers_who_knock_at_rank_0_are_let_go(monkeypatch):
    monkeypatch.setattr(joining, "GATHER_SECONDS", 5.0)
    store = {}
    monkeypatch.setattr(joining, "_store", lambda seconds: SimpleNamespace(set=store.__setitem__))

    def knock():
        while not store:
            time.sleep(0.01)
        said = json.loads(next(iter(store.values())))
        address = ("127.0.0.1", said["port"])
        with pytest.raises(multiprocessing.AuthenticationError):
            Client(address, authkey=b"another key")
        socket.create_connection(address).close()
        Client(address, authkey=bytes.fromhex(said["key"])).send((1, 0, 1))

    with ThreadPoolExecutor() as threads:
        knocked = threads.submit(knock)
        leader = joining.Leader(Joined(0, 2, 0, 1, "127.0.0.1"))
        knocked.result()
    assert leader.local == {0: (0, 1), 1: (0, 1)}
    leader.close()
    monkeypatch.setattr(joining, "GATHER_SECONDS", 0.1)
    with pytest.raises(Refused, match=r"1 of 3 ranks have come after 0 s; start the same command on every"):
        joining.Leader(Joined(0, 3, 0, 1, "127.0.0.1"))


# --- what is looked for before the first collective

FINE = [
    Facts(rank, "node", "boot", 2, f"GPU-{rank}", "NVIDIA H200", "default", 0, 2 << 30) for rank in (0, 1)
]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (FINE, ""),
        (FINE[:1], ""),
        ([replace(FINE[0], shm_nbytes=0)], ""),  # one rank shares nothing
        ([FINE[0], replace(FINE[1], uuid="", gpus=1)], "2 ranks on node, which sees 1 GPU"),
        ([replace(FINE[0], uuid="", error="no NVIDIA driver here")], "rank 0 on node sees no GPU: no NVIDIA"),
        ([replace(one, uuid=f"MIG-{one.rank}") for one in FINE], "rank 0 on node has a MIG slice"),
        ([FINE[0], replace(FINE[1], uuid="GPU-0")], "ranks 0 and 1 on node have the same GPU, GPU-0"),
        ([replace(FINE[0], compute_mode="prohibited")], "compute mode prohibited"),
        ([replace(FINE[0], compute_mode="exclusive-process")], ""),
        ([replace(FINE[0], compute_mode="exclusive-process", others=1)], "another process computes on it"),
        ([replace(one, shm_nbytes=64 << 20) for one in FINE], "/dev/shm on node has 64 MiB free"),
    ],
)
def test_what_keeps_nccl_from_running_is_one_sentence(facts, words):
    found = preflight.obstacle(facts)
    assert words in found
    assert bool(found) == bool(words)
    assert "\n" not in found


# --- what connects them


class Nvml:
    """NVML's answers for two GPUs."""

    NVMLError = RuntimeError
    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 2, 0

    def __init__(self, nvlink):
        self.nvlink = nvlink

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return uuid

    def nvmlDeviceGetP2PStatus(self, a, b, index):  # noqa: N802
        return 0 if self.nvlink else 5

    def nvmlDeviceGetNvLinkState(self, handle, link):  # noqa: N802
        if link >= 18:
            raise RuntimeError("no such link")
        return 1

    def nvmlDeviceGetTopologyCommonAncestor(self, a, b):  # noqa: N802
        return 50


def test_the_interconnect_is_that_of_the_worst_pair():
    nvlink = interconnect.links(["GPU-0", "GPU-1"], Nvml(True))
    pcie = interconnect.links(["GPU-0", "GPU-1"], Nvml(False))
    assert interconnect.kind(FINE, nvlink) == "nvlink"
    assert interconnect.kind(FINE, [*nvlink, *pcie]) == "pcie"
    assert interconnect.topology(FINE, nvlink) == "2 ranks on 1 host; 0-1 NV18"
    assert interconnect.topology(FINE, pcie) == "2 ranks on 1 host; 0-1 SYS"
    assert interconnect.kind(FINE[:1], []) == "none"
    assert interconnect.kind([FINE[0], replace(FINE[1], boot_id="other")], []) == "network"
    assert interconnect.kind([FINE[0], replace(FINE[1], host="other")], []) == "network"


def test_where_nvml_does_not_answer_the_interconnect_is_unknown():
    nvml = Nvml(True)
    nvml.nvmlDeviceGetP2PStatus = lambda *_: (_ for _ in ()).throw(RuntimeError("not supported"))
    found = interconnect.links(["GPU-0", "GPU-1"], nvml)
    assert interconnect.kind(FINE, found) == "unknown"
    assert "not supported" in interconnect.topology(FINE, found)


# --- how many

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node",
    "MASTER_PORT": "1",
}


def test_how_many_ranks_there_are():
    assert World("3").size("cpu") == World("3").size("cuda") == 3
    assert World().size("cpu") == 2
    assert World("all", TORCHRUN).size("cpu") == 4
    assert World("4", TORCHRUN).joined == Joined(1, 4, 1, 2, "node")


@pytest.mark.parametrize("asked", ["0", "-1", "two", "", "1.5", "100000"])
def test_a_wrong_number_of_ranks_is_one_sentence(asked):
    with pytest.raises(UsageError, match="neither a number from 1 to 4096 nor `all`"):
        World(asked)


def test_torchrun_decides_how_many_there_are():
    with pytest.raises(UsageError, match="--ranks 2 under torchrun, whose world has 4"):
        World("2", TORCHRUN)
    with pytest.raises(UsageError, match="cannot be one of torchrun's"):
        refuse_campaign({"TORCHELASTIC_RUN_ID": "none"})


# --- times


def test_an_iteration_is_the_slowest_ranks():
    assert slowest([Sample(1.0), Sample(2.0, (Flag.PREEMPTED,))]) == Sample(2.0, (Flag.PREEMPTED,))


def test_a_sample_asks_all_ranks_at_once():
    class Asked:
        def ask(self, request, seconds):
            return [(1.0, ()), (3.0, ("preempted",))] if type(request).__name__ == "Take" else [4, 4]

    timer = Sampled(Asked(), Timing.NATIVE, 4, 1.0)
    assert timer.prepare(print) == 4
    assert timer.sample(print) == Sample(3.0, (Flag.PREEMPTED,))
