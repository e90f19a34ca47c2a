"""How a stack's processes are started: real activate files, real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_lib.errors import Refused, UsageError
from bench_lib.stacking import environments, stacks

PATH = '["packed"]\nkind = "path"\nfolder = "packed"\ndeclared = { cudart = "11.8" }\n'
ACTIVATE = """
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} TWO_LINES=$'one\\ntwo'
unset GIVEN
echo "a greeting"
"""
REPORT = """
import json, os, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = __import__(name).__name__
    except ImportError:
        found[name] = "absent"
print(json.dumps([found, dict(os.environ), sys.executable]))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(tmp_path / "stacks.toml"))
    monkeypatch.setenv("GIVEN", "before")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    write(tmp_path, PATH, ACTIVATE)
    return tmp_path


def write(home: Path, toml: str, activate: str) -> None:
    (home / "stacks.toml").write_text(toml)
    (home / "packed").mkdir(exist_ok=True)
    (home / "packed" / "activate").write_text(activate)
    for name in ("torch", "triton"):  # what is in the folder counts only where it is declared
        (home / "packed" / f"{name}.py").write_text("")


def started(name: str, *packages: str) -> tuple[dict[str, str], dict[str, str], str]:
    """What a process of a stack can import, its variables and its interpreter."""
    its = environments.environment(stacks.stack(name))
    done = subprocess.run(
        [its.python, "-c", REPORT, *packages],
        env=dict(its.variables),
        capture_output=True,
        text=True,
        check=True,
    )
    found: Any = json.loads(done.stdout)
    return found[0], found[1], found[2]


def test_an_activate_file_is_sourced_in_bash(home: Path) -> None:
    _, variables, python = started("packed")
    assert variables["PYTHONPATH"].split(":")[1:] == [str(home / "packed")]
    assert variables["TWO_LINES"] == "one\ntwo"
    assert "GIVEN" not in variables
    assert variables["HOME"] == os.environ["HOME"]
    assert variables.get("SHLVL") == os.environ.get("SHLVL")
    assert python == sys.executable  # it names none of its own


def test_what_a_packed_stack_does_not_declare_is_absent(home: Path) -> None:
    packages, _, _ = started("packed", "torch", "cupy", "triton", "numpy")
    assert packages == {"torch": "absent", "cupy": "absent", "triton": "absent", "numpy": "numpy"}
    write(home, PATH.replace("{ ", '{ torch = "2.6.0", '), ACTIVATE)
    assert started("packed", "torch")[0]["torch"] == "torch"
    assert started("packed", "triton")[0]["triton"] == "absent"


def test_nothing_is_hidden_here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_GAINS_HIDDEN", "numpy")  # of a stack that this process is in
    packages, variables, python = started("here", "numpy")
    assert packages["numpy"] == "numpy"
    assert python == sys.executable
    assert "PYTHONPATH" not in variables
    assert variables["CUDA_GAINS_STACK"] == "here"


def test_an_activate_file_may_bring_its_own_python(home: Path) -> None:
    (home / "packed" / "bin").mkdir()
    write(home, PATH, ACTIVATE + "export PATH=$here/bin:$PATH\n")
    assert started("packed")[2] == sys.executable  # a folder of tools, without a Python
    (home / "packed" / "bin" / "python3").symlink_to(sys.executable)
    write(home, PATH, ACTIVATE + "export PATH=$here/bin:$PATH\n")
    assert started("packed")[2] == str(home / "packed" / "bin" / "python3")
    write(home, PATH + f'python = "{sys.executable}"\n', ACTIVATE + "export PATH=$here/bin:$PATH\n")
    assert environments.environment(stacks.stack("packed")).python == sys.executable
    write(home, PATH + 'python = "python9.9"\n', ACTIVATE)
    with pytest.raises(UsageError, match=r"wants the interpreter 'python9\.9', which is not in PATH"):
        environments.environment(stacks.stack("packed"))


@pytest.mark.parametrize(
    ("activate", "said"),
    [
        ("echo it is broken >&2; return 3", "fails when bash sources it, with 3: it is broken"),
        ("if then", "fails when bash sources it, with 2: .*if then"),
        ("exit 0", "ends the shell"),
    ],
)
def test_an_activate_file_that_fails_is_named(home: Path, activate: str, said: str) -> None:
    write(home, PATH, activate + "\n")
    with pytest.raises(UsageError, match=said) as caught:
        environments.environment(stacks.stack("packed"))
    assert "packed/activate" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_an_activate_file_is_named(home: Path) -> None:
    (home / "packed" / "activate").unlink()
    with pytest.raises(UsageError, match=r"there is no .*/packed/activate; unpack the stack there"):
        environments.environment(stacks.stack("packed"))


def test_each_stack_compiles_into_folders_of_its_own(home: Path) -> None:
    names = ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH"]
    found = {name: started(name)[1] for name in ("here", "packed")}
    for name in names:
        folders = [Path(found[stack][name]) for stack in ("here", "packed")]
        assert folders[0] != folders[1]
        assert all(folder.is_dir() and folder.is_relative_to(home / "cache") for folder in folders)
    assert len({found["here"][name] for name in names}) == len(names)


def test_a_stack_is_measured_in_its_own_processes_only(home: Path) -> None:
    entry = stacks.stack("packed")
    with pytest.raises(Refused, match="measure it with `cuda-gains run --stack packed`"):
        environments.require(entry, os.environ)
    environments.require(entry, environments.environment(entry).variables)
    environments.require(stacks.HERE, {})


def test_a_virtual_environment_sees_nothing_of_pythonpath(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "stacks.toml").write_text('[made]\nkind = "venv"\nrequirements = ["a==1"]\ndeclared = {}\n')
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    its = environments.environment(stacks.stack("made"))
    folder = home / "cache/cuda-gains/stacks/made"
    assert its.python == str(folder / "bin/python")
    assert "PYTHONPATH" not in its.variables
    assert its.variables["VIRTUAL_ENV"] == str(folder)
    assert its.variables["PATH"].startswith(f"{folder}/bin:")
    assert its.variables["NUMBA_CACHE_DIR"].endswith("made/numba")
