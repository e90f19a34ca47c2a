"""The preflight of torch.compile: each missing thing gives one sentence, quickly."""

import os
import shutil
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from bench_lib.compiling import compile_preflight
from bench_lib.errors import Unavailable

WITH_TRITON = {"triton": ModuleSpec("triton", None)}


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: WITH_TRITON.get(name))


def script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def refusal(device: str, **options) -> str:
    with pytest.raises(Unavailable) as caught:
        compile_preflight.check(device, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


needs_tools = pytest.mark.skipif(
    not (
        shutil.which("gcc")
        and shutil.which("g++")
        and (compile_preflight.include_folder() / "Python.h").is_file()
    ),
    reason="no gcc, g++ or Python.h here",
)


@needs_tools
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_complete_machine_passes_within_seconds(device):
    begin = time.perf_counter()
    compile_preflight.check(device)
    assert time.perf_counter() - begin < 30  # a second when idle


@pytest.mark.parametrize(("device", "words"), [("cpu", ["g++", "CXX"]), ("cuda", ["gcc, clang", "CC"])])
def test_no_compiler(monkeypatch, tmp_path, device, words):
    monkeypatch.setenv("PATH", str(tmp_path))
    text = refusal(device)
    assert all(word in text for word in words)


def test_triton_takes_clang_where_there_is_no_gcc(monkeypatch, tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "Python.h").touch()
    called = tmp_path / "called"
    script(tmp_path, "clang", f": > {called}")
    monkeypatch.setenv("PATH", str(tmp_path))
    compile_preflight.check("cuda", tmp_path / "include")
    assert called.exists()


def test_a_named_compiler_that_is_not_there(monkeypatch):
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert "CC=/nowhere/cc is not there" in refusal("cuda")


def test_no_triton_matters_on_a_gpu_only(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "Triton" in refusal("cuda")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Triton" not in refusal("cpu")


def test_no_python_headers(monkeypatch, tmp_path):
    script(tmp_path, "gcc", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert "python3-dev" in refusal("cuda", include=tmp_path)


def test_a_compiler_without_its_headers(monkeypatch, tmp_path):
    (tmp_path / "Python.h").touch()
    script(tmp_path, "broken", "echo 'x.c:1:10: fatal error: stddef.h: No such file' >&2; exit 1")
    monkeypatch.setenv("CC", str(tmp_path / "broken"))
    assert "fatal error: stddef.h: No such file" in refusal("cuda", include=tmp_path)


def test_a_compiler_that_does_not_run(monkeypatch, tmp_path):
    (tmp_path / "Python.h").touch()
    (tmp_path / "cc").write_bytes(b"\x7fELF, but not really")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    assert "does not run" in refusal("cuda", include=tmp_path)
