"""Campaigns over stacks of each kind: really made, really started, and compared."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_cuda as fake
import fake_cudnn
import pytest
import wheels
from plugin_runs import INI, rows
from rich.console import Console

from bench_lib.campaigns import campaign
from bench_lib.campaigns.campaign import Plan
from bench_lib.errors import UsageError

ROOT = Path(__file__).parents[1]
ACTIVATE = """  # as a packed stack has it
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
for d in "$here"/nvidia/*/lib; do
  [ -d "$d" ] && LD_LIBRARY_PATH=$d${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
"""
HEAD = "import os, sys\nimport pytest\nfrom bench_lib.model import Series\nFAMILY = 'made'\nMARGIN = 0.05\n"


class Kit:
    """A folder of benchmark files, stacks, wheels, and campaigns over them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "made"
        self.path.mkdir()
        (self.path / "pytest.ini").write_text(INI)
        self.wheels = home / "wheels"
        self.said = ""

    def bench(self, body: str) -> None:
        (self.path / "bench_made.py").write_text(HEAD + body)

    def write(self, text: str) -> None:
        (self.home / "stacks.toml").write_text(text)

    def pack(self, name: str, files: dict[str, str]) -> Path:
        """An unpacked folder as `pack_stack.sh` leaves one."""
        folder = self.home / name
        for place, text in {"activate": ACTIVATE, **files}.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(text)
        return folder

    def run(self, *stacks: str, **changes: Any) -> int:
        given: dict[str, Any] = {
            "campaign": "c",
            "results": self.home / "results",
            "stacks": stacks,
            "rounds": 1,
            "null": False,
            "device": "cpu",
            "benchmarks": self.path,
            "stacks_file": self.home / "stacks.toml",
            "watchdog_seconds": 30.0,
        }
        output = io.StringIO()
        code = campaign.run(Plan(**given | changes), Console(file=output, width=400))
        self.said = output.getvalue()
        return code

    def compared(self, baseline: str, candidate: str) -> dict[str, Any]:
        command = [sys.executable, "-c", "from bench_lib.cli import main; main()"]
        command += ["compare", baseline, candidate, "--campaign", "c", "--format", "json"]
        command += ["--results", str(self.home / "results")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout))

    def table(self, name: str) -> list[dict[str, Any]]:
        return rows(self.home / "results/c", name)

    def cases(self, stack: str) -> dict[str, tuple[str, str]]:
        """Op -> status and reason."""
        rows = [row for row in self.table("cases") if row["arm"] == stack]
        return {row["op"]: (row["status"], row["reason"]) for row in rows}

    def identities(self) -> dict[str, dict[str, str]]:
        """Arm -> what its run says of the stack."""
        return {row["arm"]: dict(row["stack_identity"]) for row in self.table("runs")}

    def rounds(self) -> int:
        return len(list((self.home / "results/c/rounds").glob("*.json")))


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(tmp_path / "stacks.toml"))
    return Kit(tmp_path)


@pytest.fixture
def gpu_kit(kit: Kit, fake_cuda: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Kit:
    """The same on the pretended GPU, with the fixtures of the benchmark files."""
    for name, value in fake_cuda.items():
        monkeypatch.setenv(name, value)
    return kit


def test_from_creation_to_comparison_with_two_environments(kit: Kit) -> None:
    """Two versions of a package in two environments made here; the newer one takes half the time."""
    wheels.write_needs(kit.wheels)
    toml = '[{n}]\nkind = "venv"\nrequirements = ["triton=={v}"]\ndeclared = {{ triton = "{v}" }}\n'
    kit.write(toml.format(n="old", v="3.2.0") + toml.format(n="new", v="3.3.0"))
    for version, seconds in (("3.2.0", 0.5), ("3.3.0", 0.25)):
        source = f"__version__ = {version!r}\nSECONDS = {seconds}\n"
        wheels.write(kit.wheels, "triton", version, {"triton/__init__.py": source})
    kit.bench("def bench_sum(bench):\n    import triton\n    bench.record(Series((triton.SECONDS,)))\n")
    assert kit.run("old", "new", wheels=kit.wheels) == 0, kit.said
    assert "old: making an environment with" in kit.said
    assert {arm: found["triton.version"] for arm, found in kit.identities().items()} == {
        "old": "3.2.0",
        "new": "3.3.0",
    }
    told = kit.compared("old", "new")
    assert told["attribution"] == "triton 3.2.0 -> 3.3.0"
    assert [row["ratio"] for row in told["cases"]] == [0.5]


SORT = """
def bench_sort(bench):  # timed by itself: a busy machine would flag the suite's own samples
    import time, numpy
    values = numpy.random.default_rng(0).random(1_000_000)
    begin = time.perf_counter()
    numpy.sort(values)
    bench.record(Series((time.perf_counter() - begin,)))
"""


@pytest.mark.slow
def test_from_creation_to_comparison_with_two_real_environments(kit: Kit) -> None:
    """Two versions of NumPy, as two of torch would be; everything comes from a package index."""
    toml = (
        '[{n}]\nkind = "venv"\nrequirements = ["numpy=={v}", "numba==0.61.2"]\n'
        'declared = {{ numpy = "{v}", numba = "0.61.2" }}\n'
    )
    kit.write(toml.format(n="old", v="2.1.3") + toml.format(n="new", v="2.2.6"))
    kit.bench(SORT)
    assert kit.run("old", "new", rounds=3, null=True) == 0, kit.said
    assert {found["numpy.version"] for found in kit.identities().values()} == {"2.1.3", "2.2.6"}
    told = kit.compared("old", "new")
    assert told["attribution"] == "numpy 2.1.3 -> 2.2.6"
    assert [row["n"] for row in told["cases"]] == [3], told


def test_each_stack_has_its_own_caches_and_no_path_of_them_is_a_setting(kit: Kit) -> None:
    kit.pack("one", {})
    kit.pack("two", {})
    kit.write("".join(f'[{n}]\nkind = "path"\nfolder = "{n}"\ndeclared = {{}}\n' for n in ("one", "two")))
    kit.bench(
        "def bench_where(bench):\n"
        "    bench.fact('triton', os.environ['TRITON_CACHE_DIR'])\n"
        "    bench.record(Series((1.0,)))\n"
    )
    assert kit.run("one", "two") == 0, kit.said
    places = {row["arm"]: dict(row["facts"])["triton"] for row in kit.table("cases")}
    assert {Path(place).parent.name for place in places.values()} == {"one", "two"}
    settings = [{k: v for k, v in dict(row["settings"]).items() if "env." in k} for row in kit.table("runs")]
    assert settings[0] == settings[1]  # what differs between the two is where they lie


TORCH = """
import os, types
__version__ = {version}
version = types.SimpleNamespace(cuda="12.4", git_version="")
"""
USES = """
def bench_a(bench):
    bench.record(Series((1.0,)))

def bench_b(bench):
    import torch
    bench.record(Series((1.0,)))

def bench_c(bench):
    bench.record(Series((1.0,)))
"""
PACKED = '[packed]\nkind = "path"\nfolder = "packed"\ndeclared = {{ torch = "{version}" }}\n'


def test_a_stack_that_is_not_what_it_declares_is_refused_before_a_run(kit: Kit) -> None:
    kit.pack("packed", {"torch/__init__.py": TORCH.format(version="'2.7.1'")})
    kit.write(PACKED.format(version="2.6.0"))
    kit.bench(USES)
    with pytest.raises(UsageError, match=r"packed declares torch 2\.6\.0, but 2\.7\.1 is loaded"):
        kit.run("packed")
    assert not (kit.home / "results").exists()


def test_a_version_that_differs_when_it_is_loaded_stops_the_run_with_both(kit: Kit) -> None:
    """Another torch than the one that was asked before the campaign."""
    lies = "'2.7.1' if 'CUDA_GAINS_TASK' in os.environ else '2.6.0'"
    kit.pack("packed", {"torch/__init__.py": TORCH.format(version=lies)})
    kit.write(PACKED.format(version="2.6.0"))
    kit.bench(USES)
    assert kit.run("packed", seed=1) == 4
    said = "stack packed declares torch 2.6.0, but 2.7.1 is loaded; correct its entry"
    assert said in kit.said
    assert kit.rounds() == 0
    cases = kit.cases("packed")
    assert cases["b"][0] == "failed"
    assert cases["b"][1].startswith(said)
    assert {status for op, (status, _) in cases.items() if op != "b"} <= {"ok"}
    rows = kit.table("cases")
    assert len(rows) < 3  # no case was measured after it


def test_a_runtime_of_another_version_stops_the_run_with_both(gpu_kit: Kit, fake_wheels: Path) -> None:
    gpu_kit.write(
        '["wrong"]\nkind = "cudart"\nrequirements = ["nvidia-cuda-runtime-cu12==12.4.127"]\n'
        'declared = { cudart = "12.6" }\n'
    )
    gpu_kit.bench("def bench_r(bench, runtime):\n    bench.record(Series((1.0,)))\n")
    assert gpu_kit.run("wrong", device="cuda", wheels=fake_wheels) == 4
    assert "stack wrong declares cudart 12.6, but 12.4 is loaded from" in gpu_kit.said
    assert gpu_kit.cases("wrong")["r"][0] == "failed"
    assert gpu_kit.rounds() == 0


NATIVE_FILE = """
def bench_launch(bench, runtime, gpu, cubin):
    key = runtime.register(cubin, ["empty"])["empty"]
    bench.fact("runtime", str(runtime.path))
    bench(lambda: runtime.launch(key, (1, 1, 1), (1, 1, 1), gpu.stream), timing="host")

def bench_cudnn(bench, stack, gpu):
    from bench_lib.convolution.cudnn import Cudnn
    from bench_lib.convolution.cudnn_libraries import locate_cudnn
    Cudnn.load(locate_cudnn(stack), gpu.stream).close()
    bench.record(Series((1.0,)))

def bench_torch(bench, torch):
    bench.record(Series((1.0,)))

def bench_cupy(bench, cupy):
    bench.record(Series((1.0,)))

def bench_no_torch(bench):
    import multiprocessing
    with pytest.raises(ImportError):
        import torch
    server = multiprocessing.get_context("forkserver")  # as workers are started
    server.set_forkserver_preload(["torch"])
    child = server.Process(target=exec, args=("import sys; sys.exit(3 if sys.modules.get('torch') else 0)",))
    child.start()
    child.join()
    assert child.exitcode == 0
    bench.record(Series((1.0,)))
"""
DECLARED = 'declared = { cudart = "12.4", cudnn = "9.1.0" }\n'


def native(kit: Kit, built: Path) -> Path:
    """The libraries of a stack without torch, laid out as pip does it."""
    site = built / "native"
    fake_cudnn.build(site)
    runtime = fake.build_runtime(built, "12.4.127")
    target = site / fake.runtime_name("12.4.127")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(runtime, target)
    kit.bench(NATIVE_FILE)
    return site


def judge_native(kit: Kit, name: str, folder: Path) -> None:
    cases = kit.cases(name)
    assert {op for op, (status, _) in cases.items() if status == "ok"} == {"launch", "cudnn", "no_torch"}, (
        cases
    )
    assert cases["torch"] == ("not-applicable", f"stack {name} holds no torch")
    assert cases["cupy"] == ("not-applicable", f"stack {name} holds no CuPy")
    found = kit.identities()[name]
    assert (found["cudart.version"], found["cudnn.version"]) == ("12.4", "9.1.0")
    assert Path(found["cudart.path"]).is_relative_to(folder)
    assert Path(found["cudnn.path"]).is_relative_to(folder)
    assert not any(key.startswith(("torch", "cupy", "triton")) for key in found)
    (facts,) = [dict(row["facts"]) for row in kit.table("cases") if row["op"] == "launch"]
    assert Path(facts["runtime"]).is_relative_to(folder)


def test_a_native_stack_on_a_gpu(gpu_kit: Kit, fake_cuda_built: Path) -> None:
    site = native(gpu_kit, fake_cuda_built)
    libraries = {str(p.relative_to(site)): p.read_bytes() for p in site.rglob("lib*.so*")}
    wheels.write(gpu_kit.wheels, "some-cuda", "12.4.0", libraries)
    gpu_kit.write('[native]\nkind = "native"\nrequirements = ["some-cuda==12.4.0"]\n' + DECLARED)
    assert gpu_kit.run("native", device="cuda", wheels=gpu_kit.wheels) == 0, gpu_kit.said
    judge_native(gpu_kit, "native", gpu_kit.home / "cache/cuda-gains/stacks/native")


def test_a_packed_stack_on_a_gpu(gpu_kit: Kit, fake_cuda_built: Path) -> None:
    """The machine's own Python holds a runtime and a torch; none of them is the stack's."""
    site = native(gpu_kit, fake_cuda_built)
    folder = gpu_kit.pack("packed", {})
    shutil.copytree(site, folder, dirs_exist_ok=True)
    gpu_kit.write('[packed]\nkind = "path"\nfolder = "packed"\n' + DECLARED)
    assert gpu_kit.run("packed", device="cuda") == 0, gpu_kit.said
    judge_native(gpu_kit, "packed", folder)
    (run,) = gpu_kit.table("runs")
    assert "STACK/nvidia/cudnn/lib" in dict(run["settings"])["env.LD_LIBRARY_PATH"]
    assert str(folder) not in dict(run["settings"])["env.LD_LIBRARY_PATH"]


def test_what_is_wrong_with_a_stack_is_refused_before_its_first_case(gpu_kit: Kit) -> None:
    infos = {f"nvidia_cudnn_cu{n}-9.1.0.70.dist-info/METADATA": "" for n in (11, 12)}
    gpu_kit.pack("packed", infos)
    gpu_kit.write('[packed]\nkind = "path"\nfolder = "packed"\ndeclared = {}\n')
    gpu_kit.bench("def bench_a(bench):\n    bench.record(Series((1.0,)))\n")
    assert gpu_kit.run("packed") == 4
    assert "stack packed: " in gpu_kit.said
    assert "holds wheels of CUDA 11 and 12 (nvidia-cudnn-cu11 9.1.0.70, nvidia-cudnn-cu12" in gpu_kit.said
    assert gpu_kit.table("cases") == []


def test_a_driver_too_old_for_a_stack_is_refused(gpu_kit: Kit, fake_cuda_built: Path) -> None:
    library = gpu_kit.pack("packed", {}) / fake.runtime_name("14.0.1")
    library.parent.mkdir(parents=True)
    shutil.copy(fake.build_runtime(fake_cuda_built, "14.0.1"), library)
    gpu_kit.write('[packed]\nkind = "path"\nfolder = "packed"\ndeclared = { cudart = "14.0" }\n')
    gpu_kit.bench("def bench_a(bench):\n    bench.record(Series((1.0,)))\n")
    assert gpu_kit.run("packed", device="cuda") == 4
    assert "stack packed: the driver of CUDA 13.0 is too old for CUDA 14.0" in gpu_kit.said
    assert gpu_kit.run("packed", device="cpu", campaign="other") == 0  # the CPU needs no driver


def test_plain_pytest_does_not_measure_a_stack_it_is_not_in(kit: Kit) -> None:
    kit.pack("packed", {})
    kit.write('[packed]\nkind = "path"\nfolder = "packed"\ndeclared = {}\n')
    kit.bench("def bench_a(bench):\n    bench.record(Series((1.0,)))\n")
    command = [sys.executable, "-m", "pytest", str(kit.path), "--stack", "packed", "--device", "cpu"]
    done = subprocess.run(command, cwd=kit.home, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "measure it with `cuda-gains run --stack packed`" in done.stderr
