"""Two real PyTorch versions in two real environments, from `stacks create` to `report`, by the commands.

The versions are the index's own: the newest that comes as a CPU build, if there is one, and the one that
this Python holds, or else the newest. It takes minutes, and up to 6 GB that are removed at its end.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_runs import INI

TORCH = """
import time
from bench_lib.model import Series
FAMILY = "made"

def bench_matmul(bench):  # timed by itself: a busy machine would flag the suite's own samples
    import torch
    torch.set_num_threads(1)
    a = torch.rand(256, 256, generator=torch.Generator().manual_seed(0))
    seconds = []
    for _ in range(30):
        begin = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - begin)
    bench.record(Series(tuple(seconds)))

def bench_version(bench):
    import torch
    bench.fact("seen", torch.__version__)
    bench.record(Series((1.0,)))
"""
pytestmark = pytest.mark.slow


def index_versions() -> list[str]:
    """The torch versions that the index has for this Python, newest first; skips where there is no index."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if found is None:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        pytest.skip(f"no package index gives versions of torch: {last}")
    return found[1].split(", ")


def two_versions() -> tuple[str, str]:
    """Older and newer, without what stands behind a +: the index says which build it has of them."""
    listed = index_versions()
    bare = list(dict.fromkeys(version.partition("+")[0] for version in listed))
    small = [version.partition("+")[0] for version in listed if version.endswith("+cpu")]
    here = importlib.metadata.version("torch").partition("+")[0]
    first = small[0] if small else bare[1]
    second = here if here in bare and here != first else next(v for v in bare if v != first)
    return tuple(sorted((first, second), key=bare.index, reverse=True))  # type: ignore[return-value]


class Commands:
    """`cuda-gains` in a folder of its own, with a cache of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.versions = two_versions()
        self.names = tuple(f"torch-{version}" for version in self.versions)
        pins = [f"{name}=={importlib.metadata.version(name)}" for name in ("numpy", "numba", "setuptools")]
        text = ""
        for name, version in zip(self.names, self.versions, strict=True):
            text += f'["{name}"]\nkind = "venv"\nrequirements = {json.dumps([f"torch=={version}", *pins])}\n'
            text += f'declared = {{ torch = "{version}" }}\n'
        (home / "benchmarks").mkdir()
        (home / "benchmarks/stacks.toml").write_text(text)
        (home / "benchmarks/pytest.ini").write_text(INI)
        (home / "benchmarks/bench_made.py").write_text(TORCH)

    def __call__(self, *words: str) -> str:
        code = "import sys; from bench_lib.cli import main; sys.argv[0] = 'cuda-gains'; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=self.home,
            env={**os.environ, "XDG_CACHE_HOME": str(self.home / "cache"), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def cuda_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    monkeypatch.setenv("PIP_CACHE_DIR", os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache/pip")))
    monkeypatch.delenv("CUDA_GAINS_STACKS", raising=False)
    yield Commands(tmp_path)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def test_two_torch_versions_from_creation_to_report(cuda_gains: Commands, tmp_path: Path) -> None:
    a, b = cuda_gains.names
    created = cuda_gains("stacks", "create", a, b)
    assert created.splitlines() == [f"{name}: {tmp_path}/cache/cuda-gains/stacks/{name}" for name in (a, b)]
    for name, version in zip((a, b), cuda_gains.versions, strict=True):
        assert f"torch {version}" in cuda_gains("stacks", "show", name)

    cuda_gains("run", "--stack", a, "--stack", b, "--rounds", "3", "--device", "cpu", "--campaign", "c")
    told = json.loads(cuda_gains("compare", a, b, "--campaign", "c", "--format", "json"))
    differ = {row["component"]: (row["baseline"], row["candidate"]) for row in told["differences"]}
    assert [seen.partition("+")[0] for seen in differ["torch"]] == list(cuda_gains.versions)
    assert not {"numpy", "numba", "python"} & set(differ)
    assert f"torch {cuda_gains.versions[0]}" in told["attribution"]
    rows = {row["op"]: row for row in told["cases"]}
    assert {row["n"] for row in rows.values()} == {3}, told
    assert (rows["version"]["change"], rows["version"]["ratio"]) == ("same", 1.0)
    assert rows["matmul"]["low"] < rows["matmul"]["ratio"] < rows["matmul"]["high"]

    noise = json.loads(cuda_gains("calibrate", "--campaign", "c", "--format", "json"))
    assert noise, noise
    written = cuda_gains("report", a, b, "--campaign", "c", "-o", str(tmp_path / "out"))
    page = Path(written.strip().splitlines()[-1])
    assert page.is_file()
    assert told["attribution"].split(" ->")[0] in page.read_text()
    print(told["attribution"], rows["matmul"])
