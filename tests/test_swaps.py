"""A library exchanged in a stack: real libraries, a real loader, and the memory map to tell."""

import subprocess
import sys
from pathlib import Path

import pytest
import wheels

from bench_lib.errors import Unavailable, UsageError
from bench_lib.stacking import environments, stacks, stock

STACKS = """
[packed]
kind = "path"
folder = "packed"
declared = { torch = "2.6.0", nccl = "2.21.5" }

[swapped]
kind = "swap"
base = "packed"
library = "nccl"
requirements = ["some-nccl==2.22.3"]
declared = { nccl = "2.22.3" }
"""
ACTIVATE = """
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here
"""
# As torch does it: a library that finds its own by DT_RPATH, opened by a package of that name.
TORCH = """
import ctypes, types
from pathlib import Path
__version__ = "2.6.0"
version = types.SimpleNamespace(cuda="12.4", git_version="")
folder = Path(__file__).parent
ctypes.CDLL(str(folder / "lib" / "libtorch_cuda.so"))
"""
NCCL = "int ncclGetVersion(int *v) {{ *v = {number}; return 0; }} int ncclSend(void) {{ return 1; }}"
USES = "int ncclSend(void); int send_all(void) { return ncclSend(); }"
PLACE = "nvidia/nccl/lib/libnccl.so.2"


class Kit:
    """A packed stack whose torch loads an NCCL, and wheels of others."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.wheels = home / "wheels"
        (home / "stacks.toml").write_text(STACKS)
        packed = home / "packed"
        old = wheels.library(packed / PLACE, NCCL.format(number=22105))
        (packed / "activate").write_text(ACTIVATE)
        rpath = ("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib")
        wheels.library(packed / "torch/lib/libtorch_cuda.so", USES, *rpath, str(old))
        (packed / "torch/__init__.py").write_text(TORCH)

    def offer(self, source: str = NCCL.format(number=22203), place: str = PLACE) -> None:
        built = wheels.library(self.home / "built" / Path(place).name, source)
        wheels.write(self.wheels, "some-nccl", "2.22.3", {place: built.read_bytes()})

    def create(self) -> Path:
        return stock.create("swapped", self.wheels)

    def python(self, code: str, name: str = "swapped") -> str:
        its = environments.environment(stacks.stack(name))
        done = subprocess.run(
            [its.python, "-c", code], env=dict(its.variables), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def left(self) -> list[str]:
        folder = self.home / "cache/cuda-gains/stacks"
        return sorted(path.name for path in folder.glob("*"))


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_cuda_built: Path) -> Kit:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(tmp_path / "stacks.toml"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return Kit(tmp_path)


MAPPED = "import torch; print([l.split()[-1] for l in open('/proc/self/maps') if 'libnccl' in l][0])"


def test_torch_gets_the_exchanged_library_in_every_process(kit: Kit) -> None:
    kit.offer()
    folder = kit.create()
    assert kit.python(MAPPED, "packed") == str(kit.home / "packed" / PLACE)
    assert kit.python(MAPPED) == str(folder / PLACE)
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {MAPPED!r}])"
    assert kit.python(child) == str(folder / PLACE)


def test_the_new_version_is_seen_and_the_rest_stays(kit: Kit) -> None:
    kit.offer()
    kit.create()
    shown = stock.described("swapped")
    assert shown["check"] == "what is declared is what is there"
    assert {"nccl 2.22.3", "torch 2.6.0", "torch.cuda 12.4"} <= set(shown["observed"].splitlines())
    assert (shown["base"], shown["exchanges"]) == ("packed", "nccl")
    assert "nccl 2.21.5" in stock.described("packed")["observed"].splitlines()


def test_a_library_of_another_major_is_refused(kit: Kit) -> None:
    kit.offer(place="nvidia/nccl/lib/libnccl.so.3")
    with pytest.raises(UsageError, match=r"calls itself libnccl\.so\.3, .* asks for libnccl\.so\.2"):
        kit.create()
    assert kit.left() == []


def test_a_library_that_lacks_a_symbol_torch_asks_for_is_refused(kit: Kit) -> None:
    kit.offer(NCCL.format(number=22203).replace("ncclSend", "ncclTransmit"))
    with pytest.raises(UsageError, match=r"libtorch_cuda\.so asks for ncclSend, which some-nccl==2\.22\.3"):
        kit.create()
    assert kit.left() == []


def test_another_version_than_declared_is_refused(kit: Kit) -> None:
    kit.offer(NCCL.format(number=22304))
    with pytest.raises(UsageError, match=r"declares nccl 2\.22\.3, but 2\.23\.4 is loaded from .*libnccl"):
        kit.create()
    assert kit.left() == []


def test_a_base_that_loads_its_library_by_path_is_refused(kit: Kit) -> None:
    by_path = f"\nctypes.CDLL(str(folder.parent / {PLACE!r}))\n"
    (kit.home / "packed/torch/__init__.py").write_text(TORCH + by_path)
    kit.offer()
    with pytest.raises(UsageError, match=rf"packed/{PLACE} is loaded too; something loads .* by its path"):
        kit.create()
    assert kit.left() == []


def test_a_base_that_looks_along_sys_path_gets_the_new_library(kit: Kit) -> None:
    """As newer torch does before it loads anything else."""
    along = f"""
import ctypes, sys
from pathlib import Path
ctypes.CDLL(next(str(path) for s in sys.path if (path := Path(s) / {PLACE!r}).exists()))
"""
    (kit.home / "packed/torch/__init__.py").write_text(along + TORCH)
    kit.offer()
    folder = kit.create()
    assert kit.python(MAPPED) == str(folder / PLACE)


def test_a_base_without_that_library_is_named(kit: Kit) -> None:
    kit.offer()
    (kit.home / "packed" / PLACE).unlink()
    with pytest.raises(UsageError, match=r"packed: torch does not import \(libnccl\.so.*; it is declared"):
        kit.create()
    (kit.home / "packed/torch/__init__.py").write_text("")
    with pytest.raises(UsageError, match=r"packed declares .*nccl 2\.21\.5, but none .* found in .*packed; "):
        kit.create()
    text = (kit.home / "stacks.toml").read_text()
    declared = next(line for line in text.splitlines() if line.startswith("declared") and "2.21.5" in line)
    (kit.home / "stacks.toml").write_text(text.replace(declared, 'declared = { torch = "2.6.0" }'))
    (kit.home / "packed/torch/__init__.py").write_text('__version__ = "2.6.0"')
    with pytest.raises(UsageError, match="exchanges nccl, but stack packed has none in nvidia"):
        kit.create()


def test_what_is_not_created_names_the_command(kit: Kit) -> None:
    with pytest.raises(
        UsageError, match="no nccl to exchange yet; fetch it with `cuda-gains stacks create sw"
    ):
        environments.environment(stacks.stack("swapped"))
    kit.wheels.mkdir()
    with pytest.raises(Unavailable, match=r"some-nccl==2\.22\.3 of stack swapped is not in .*wheels"):
        kit.create()
    assert not stock.at_hand(stacks.stack("swapped"))


def test_a_swap_of_this_python_needs_no_other_environment(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base `here`: the libraries that sys.path leads to."""
    path = kit.home / "stacks.toml"
    path.write_text(STACKS.replace('base = "packed"', 'base = "here"'))
    kit.offer()
    monkeypatch.setattr(sys, "path", [str(kit.home / "packed"), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(kit.home / "packed"))
    folder = kit.create()
    assert kit.python(MAPPED) == str(folder / PLACE)
