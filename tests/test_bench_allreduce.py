"""The families allreduce and nccl_ladder: gloo for real, and a pretended NCCL on pretended GPUs."""

import inspect
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import fake_nccl
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]
GLOO_8 = ["--family", "allreduce", "-k", "all_reduce and gloo and fp32-8-time"]


def command(results: Path, *options: str) -> list[str]:
    given = ["-m", "pytest", "benchmarks", "--results", results, "-p", "no:cacheprovider", "-p", "no:xdist"]
    return [*map(str, given), *options]


def start(results: Path, *options: str, env: dict[str, str] | None = None) -> subprocess.Popen:
    words = [sys.executable, *command(results, *options)]
    return subprocess.Popen(
        words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def rows(results: Path) -> list[dict]:
    files = (results / "local" / "cases").glob("*.parquet")
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def the_row(results: Path, ranks: int, interconnect: str) -> dict:
    """The only case that was measured, after a look at its key."""
    (row,) = rows(results)
    assert (row["status"], row["world_size"], row["timing"]) == ("ok", ranks, "host"), row["reason"]
    params = json.loads(row["params"])
    assert (params["ranks"], params["interconnect"]) == (ranks, interconnect)
    assert (params["api"], params["backend"], params["nbytes"]) == ("torch", "gloo", 8)
    assert row["nbytes"] == 8
    return row


def torchrun(results: Path, *options: str, before: tuple[str, ...] = ()) -> subprocess.Popen:
    words = [*before, sys.executable, "-m", "torch.distributed.run", *options]
    words += command(results, *GLOO_8, "--quick")
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_runs_at_once_both_pass_one_of_them_under_torchrun(tmp_path):
    both = [
        start(tmp_path / "plain", *GLOO_8, "--quick", "--ranks", "3"),
        torchrun(tmp_path / "torchrun", "--standalone", "--nproc-per-node", "2"),
    ]
    outputs = [ended(process) for process in both]
    row = the_row(tmp_path / "plain", 3, "host")
    assert row["n_samples"] >= 5
    assert dict(row["facts"])["topology"] == "3 ranks on 1 host"
    the_row(tmp_path / "torchrun", 2, "host")
    assert outputs[1].count("1 ok") == 1  # rank 0 alone records


def network(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def two_hosts():
    """Two network namespaces with a cable between them; skipped where this machine allows none."""
    names, addresses = [f"cg{os.getpid()}{end}" for end in "ab"], ("10.77.31.1", "10.77.31.2")
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    try:
        for name in names:
            network("netns", "add", name)
        network("link", "add", "veth0", "netns", names[0], "type", "veth", "peer", "veth1", "netns", names[1])
        for end, (name, address) in enumerate(zip(names, addresses, strict=True)):
            network("-n", name, "addr", "add", f"{address}/24", "dev", f"veth{end}")
            for device in (f"veth{end}", "lo"):
                network("-n", name, "link", "set", device, "up")
        yield list(zip(names, addresses, strict=True))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no network namespaces: {error.stderr.decode().strip()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def test_two_hosts_are_one_world_under_torchrun(two_hosts, tmp_path):
    def on(node: int) -> subprocess.Popen:
        name, _ = two_hosts[node]
        before = ("ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME=veth{node}")
        before = (*before, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"host{node}")
        options = ["--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1"]
        options += ["--master-addr", two_hosts[0][1], "--master-port", "29400"]
        return torchrun(tmp_path / str(node), *options, before=before)

    for process in [on(0), on(1)]:
        ended(process)
    row = the_row(tmp_path / "0", 2, "network")
    assert dict(row["facts"])["topology"] == "2 ranks on 2 hosts"
    assert not (tmp_path / "1").exists()  # only rank 0 records


# --- NCCL by path, on pretended GPUs


@pytest.fixture(scope="module")
def nccl_built(fake_cuda_built):
    """Two pretended NCCLs: 2.21.5, and the one that this Python finds first, 2.28.9."""
    return {version: fake_nccl.build(fake_cuda_built / version, version) for version in ("2.21.5", "2.28.9")}


@pytest.fixture
def fake_gpus(fake_cuda, nccl_built):
    site = nccl_built["2.28.9"].parents[3]
    return {**fake_cuda, "FAKE_CUDA_DEVICES": "2", "PYTHONPATH": f"{site}:{fake_cuda['PYTHONPATH']}"}


SMALL = "nccl-nccl and (fp32-8-time or fp32-65536-time or init or first) or (8-call or 65536-graph or alone)"


def test_nccl_by_path_is_measured_over_two_gpus_and_in_turns(fake_gpus, nccl_built, tmp_path):
    options = ["--family", "allreduce", "--family", "nccl_ladder", "--quick", "-k", SMALL]
    options += ["--nccl", f"2.21.5+cu11={nccl_built['2.21.5']}", "--device", "cuda"]
    ended(start(tmp_path, *options, env=fake_gpus))
    found = {row["case_id"]: row for row in rows(tmp_path)}
    assert {row["status"] for row in found.values()} == {"ok"}
    assert {row["world_size"] for case, row in found.items() if "/alone" not in case} == {2}
    case = "allreduce/all_reduce[api=nccl,backend=nccl,dtype=fp32,interconnect=unknown,launch={},metric=time,"
    case += "nbytes={},nccl=2.21.5+cu11,place=in,ranks=2]"
    for launch, nbytes, words in [("call", 8, "ring ll None"), ("graph", 65536, "ring ll None")]:
        facts = dict(found[case.format(launch, nbytes)]["facts"])
        chosen = (facts.get(f"nccl.{what}") for what in ("algorithm", "protocol", "channels"))
        assert " ".join(map(str, chosen)) == words
        assert facts["nccl.version"] == "2.21.5"
        assert facts["nccl.path"] == str(nccl_built["2.21.5"])
    ladder = {case: row for case, row in found.items() if case.startswith("nccl_ladder/all_reduce")}
    assert {json.loads(row["params"])["nccl"] for row in ladder.values()} == {
        "2.21.5+cu11",
        "2.21.5+cu11#2",
        "here",
    }
    assert {dict(row["facts"])["nccl.algorithm"] for row in ladder.values()} == {"ring"}
    assert {row["turns"] for row in ladder.values()} == {"nccl-call-8", "nccl-graph-65536"}


def faults(site, *names):
    """All collectives once, each fault of the pretended NCCL after that, and what the log says."""
    import os
    from pathlib import Path

    from bench_lib.collectives.asked import OPS, Collective, Loaded
    from bench_lib.collectives.choices import Choices
    from bench_lib.collectives.sweep import Group
    from bench_lib.errors import CudaGainsError
    from bench_lib.model import Policy
    from bench_lib.ranks.world import World

    told, library, world = {}, Loaded("nccl", Path(site)), World()
    short = Policy("short", 2, 1.0, 1, 0.0, 0.01)

    def measured(group, asked):
        try:
            return group.series(asked, short, None, 60).work.nbytes
        except CudaGainsError as error:
            return f"{type(error).__name__}: {error}"

    group = Group(world, "cuda", libraries=[library])
    for op in OPS:
        for place in ("in", "out"):
            for nbytes in (8, 3 << 20):
                told[f"{op} {place} {nbytes}"] = measured(group, Collective(op, nbytes, "bf16", 2, place))
    for name in names:
        group.ranks.close()
        variable, _, value = name.partition("=")
        os.environ[variable] = value
        told[name] = measured(group, Collective("all_reduce", 64, "bf16", 2))
        del os.environ[variable]
    group.ranks.close()
    choices = Choices(world, library)
    told["choice"] = choices.facts(Collective("all_reduce", 1 << 20, "fp32", 2))
    choices.close()
    world.close()
    told["too many"] = measured(Group(World("3"), "cuda", libraries=[library]), None)
    return told


def test_what_goes_wrong_in_nccl_is_told_and_all_its_collectives_are_right(fake_gpus, nccl_built):
    names = ["FAKE_NCCL_WRONG=1", "FAKE_NCCL_FAIL=3", "FAKE_NCCL_LONELY=1", "FAKE_NCCL_DIE=3"]
    call = f"import json\nprint(json.dumps(faults(*{[str(nccl_built['2.28.9']), *names]!r})))"
    source = f"{textwrap.dedent(inspect.getsource(faults))}\n{call}"
    words = [sys.executable, "-W", "error", "-c", source]
    done = subprocess.run(words, env=fake_gpus, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    wrong, failed, lonely, died = (told.pop(name) for name in names)
    assert wrong == "WrongResult: the result: element 0 is 2, expected 1"
    assert "ncclAllReduce failed with NCCL error 3 (internal error): a link is down" in failed
    assert "2 ranks were started" in lonely
    assert "not connected to each other" in lonely
    assert died.startswith("Crashed: rank 1 of 2 on ")
    assert "SIGABRT; its last words: vm:1:1 [0] NCCL WARN rank 1 cannot go on" in died
    assert told.pop("too many").startswith("Unavailable: 3 ranks on ")
    assert told.pop("choice") == {"nccl.algorithm": "nvls", "nccl.protocol": "simple", "nccl.channels": "16"}
    assert {case: nbytes for case, nbytes in told.items() if nbytes != int(case.split()[-1])} == {}
