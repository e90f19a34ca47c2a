"""native-11.8 against native-12.4 as stacks.toml ships them, from wheels and packed, on a pretended GPU.

Wheels of the very pins hold pretended libraries. So all of the campaign but its times is as on a real GPU:
the command, the processes of both stacks, what is loaded by path, and what the comparison says differs.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import fake_cuda
import fake_cudnn
import fake_managed
import pytest
import wheels
from plugin_runs import rows
from test_stack_campaigns import ACTIVATE

ROOT = Path(__file__).parents[1]
FAMILIES = ("launch", "unified_memory", "cudnn_selection", "canary")
TAKEN_BACK = "pages were not on the"
GPU_NBYTES = 16 << 30
LIBRARIES = {"11.8": ("11.0", "11", "11.11.3", "11.8.89"), "12.4": ("12", "12", "12.4.5", "12.4.127")}


def made(folder: Path, cuda: str) -> Path:
    """The libraries of one stack, laid out as pip does it, each saying the version of the shipped pin."""
    soname, major, cublas, release = LIBRARIES[cuda]
    site = folder / cuda
    fake_cudnn.build(site, cudart=int(major))
    runtime = site / f"nvidia/cuda_runtime/lib/libcudart.so.{soname}"
    runtime.parent.mkdir(parents=True)
    shutil.copy(fake_managed.build_runtime(folder, release), runtime)
    part = cublas.split(".")
    answer = f"int {{}}(int kind, int *v) {{{{ *v = (int[]){{{{{','.join(part)}}}}}[kind]; return 0; }}}}"
    blas = site / "nvidia/cublas/lib"
    wheels.library(blas / f"libcublas.so.{major}", answer.format("cublasGetProperty"))
    wheels.library(blas / f"libcublasLt.so.{major}", answer.format("cublasLtGetProperty"))
    nvrtc = f"int nvrtcVersion(int *a, int *b) {{ *a = {major}; *b = {cuda.split('.')[1]}; return 0; }}"
    wheels.library(site / f"nvidia/cuda_nvrtc/lib/libnvrtc.so.{soname}", nvrtc)
    nccl = "int ncclGetVersion(int *v) { *v = 22105; return 0; }"
    wheels.library(site / "nvidia/nccl/lib/libnccl.so.2", nccl)
    return site


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if fake_cuda.compiler() is None:
        pytest.skip("no C compiler: the pretended libraries cannot be built")
    folder = tmp_path_factory.mktemp("native")
    return {cuda: made(folder, cuda) for cuda in LIBRARIES}


def as_wheels(sites: dict[str, Path], folder: Path) -> Path:
    """A folder with a wheel for each shipped pin of the two stacks."""
    parts = {"runtime": "cuda_runtime", "nvrtc": "cuda_nvrtc", "cublas": "cublas"}
    for cuda, site in sites.items():
        for pin in shipped()[f"native-{cuda}"]["requirements"]:
            name, version = pin.split("==")
            short = name.removeprefix("nvidia-").removeprefix("cuda-").partition("-")[0]
            found = (site / "nvidia" / parts.get(short, short)).glob("lib/lib*")
            files = {str(path.relative_to(site)): path.read_bytes() for path in found}
            wheels.write(folder, name, version, files)
    return folder


def shipped() -> dict[str, dict]:
    return tomllib.loads((ROOT / "benchmarks/stacks.toml").read_text())


class Campaign:
    """The real command in the checkout, its results elsewhere."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.results = home / "results"
        self.environment = environment

    def command(self, *words: str | Path, codes: tuple[int, ...] = (0,)) -> str:
        code = "import sys; from bench_lib.cli import main; sys.argv[0] = 'cuda-gains'; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words), "--campaign", "c", "--results", self.results],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def table(self, name: str) -> list[dict]:
        return rows(self.results / "c", name)

    def compared(self, a: str, b: str) -> dict:
        return dict(json.loads(self.command("compare", a, b, "--format", "json")))


@pytest.fixture
def campaign(tmp_path: Path, fake_cuda: dict[str, str], sites: dict[str, Path]) -> Campaign:
    built = next(iter(sites.values())).parent
    gpu = {
        "FAKE_CUDA_TOTAL_NBYTES": str(GPU_NBYTES),
        "PYTHONPATH": str(ROOT / "tests"),
        "PYTEST_PLUGINS": "tiny_shapes",
    }
    return Campaign(tmp_path, {**fake_cuda, **fake_managed.environment(built, tmp_path), **gpu})


def judge(told: dict) -> None:
    """The CUDA libraries differ and nothing else does; cuDNN is another build of the same version."""
    differ = {row["component"]: (row["baseline"], row["candidate"]) for row in told["differences"]}
    assert differ["cudart"] == ("11.8", "12.4")
    assert differ["cublaslt"] == ("11.11.3", "12.4.5")
    assert differ["cudnn"] == ("9.1.0 (cuda 11.0)", "9.1.0 (cuda 12.0)")
    assert set(differ) <= {"cudart", "cublas", "cublaslt", "cudnn", "nvrtc"}
    assert told["attribution"].startswith("confounded: "), told["attribution"]
    assert not told["canaries_moved"]


@pytest.mark.slow
def test_the_whole_campaign_from_wheels(campaign: Campaign, sites: dict[str, Path], tmp_path: Path) -> None:
    """The very command of the campaign on a real GPU, two rounds: minutes, most of them page migration."""
    words = [word for family in FAMILIES for word in ("--family", family)]
    words += ["--quick", "--rounds", "2", "--wheels", str(as_wheels(sites, tmp_path / "wheels"))]
    campaign.command("run", "--stack", "native-11.8", "--stack", "native-12.4", *words, codes=(0, 1))
    assert len(campaign.table("runs")) == 6
    for row in campaign.table("cases"):  # a machine short of memory takes pages back
        assert row["status"] in ("ok", "not-applicable") or TAKEN_BACK in row["reason"], row
    ended = Counter((row["stack"], row["family"]) for row in campaign.table("cases") if row["status"] == "ok")
    assert set(ended) == {(f"native-{cuda}", family) for cuda in LIBRARIES for family in FAMILIES}
    judge(campaign.compared("native-11.8", "native-12.4"))


def test_packed_stacks_on_a_machine_without_an_index(
    campaign: Campaign, sites: dict[str, Path], tmp_path: Path
) -> None:
    entries = ""
    for cuda, site in sites.items():
        shutil.copytree(site, tmp_path / f"packed-{cuda}")
        (tmp_path / f"packed-{cuda}/activate").write_text(ACTIVATE)
        declared = ", ".join(f'{k} = "{v}"' for k, v in shipped()[f"native-{cuda}"]["declared"].items())
        entries += (
            f'["packed-{cuda}"]\nkind = "path"\nfolder = "packed-{cuda}"\ndeclared = {{ {declared} }}\n'
        )
    (tmp_path / "stacks.toml").write_text(entries)
    # A toolkit that the loader knows: a cuDNN built for CUDA 11 would open its NVRTC.
    another = "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }"
    toolkit = wheels.library(tmp_path / "toolkit/libnvrtc.so", another).parent
    campaign.environment |= {"CUDA_GAINS_STACKS": str(tmp_path / "stacks.toml"), "PIP_NO_INDEX": "1"}
    campaign.environment["LD_LIBRARY_PATH"] += f":{toolkit}"
    words = ["--family", "cudnn_selection", "--family", "launch", "--quick", "--rounds", "1", "--no-null"]
    campaign.command("run", "--stack", "packed-11.8", "--stack", "packed-12.4", *words)
    assert {row["status"] for row in campaign.table("cases")} == {"ok", "not-applicable"}
    for run in campaign.table("runs"):
        found = dict(run["stack_identity"])
        for component in ("cudart", "cublaslt", "cudnn", "nvrtc"):
            assert Path(found[f"{component}.path"]).is_relative_to(tmp_path / run["stack"])
    judge(campaign.compared("packed-11.8", "packed-12.4"))
