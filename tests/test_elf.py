"""The dynamic symbols of a shared library, against what the linker was told and what nm reads."""

import shutil
import subprocess
from pathlib import Path

import pytest
import wheels

from bench_lib.errors import UsageError
from bench_lib.identity import elf

SOURCE = """
int given; int offered(void);
extern int needed(int); extern int maybe(int) __attribute__((weak));
static int inside(int x) { return x; }
int offered(void) { return inside(needed(given) + (maybe ? maybe(1) : 0)); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, fake_cuda_built: Path) -> Path:
    return wheels.library(tmp_path_factory.mktemp("elf") / "libmade.so.3", SOURCE)


def test_what_a_library_is_called_offers_and_asks_for(library: Path) -> None:
    found = elf.symbols(library)
    assert found.soname == "libmade.so.3"
    assert {"given", "offered"} <= found.defined
    assert "needed" in found.undefined
    assert "maybe" not in found.defined | found.undefined  # weak: it may stay missing
    assert "inside" not in found.defined


def test_a_library_without_a_name(tmp_path: Path, fake_cuda_built: Path) -> None:
    path = wheels.library(tmp_path / "libmade.so", "int x;", named=False)
    assert elf.symbols(path).soname == ""


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm to compare with")
def test_nm_reads_the_same(library: Path) -> None:
    said = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    lines = [line.split()[-2:] for line in said.splitlines()]
    names = {kind: {name.split("@")[0] for k, name in lines if k == kind} for kind, _ in lines}
    found = elf.symbols(library)
    assert found.undefined == names["U"]
    assert found.defined == set().union(*(names[kind] for kind in names.keys() - {"U", "w"}))


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n" + b"x" * 100, b"\x7fELF\x01\x01" + b"\0" * 60])
def test_another_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "libmade.so"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"libmade\.so cannot be read as a shared library"):
        elf.symbols(path)


def test_a_cut_library_is_refused_wherever_it_is_cut(library: Path, tmp_path: Path) -> None:
    data, path = library.read_bytes(), tmp_path / "cut.so"
    for length in range(0, len(data), 97):
        path.write_bytes(data[:length])
        with pytest.raises(UsageError):
            elf.symbols(path)
