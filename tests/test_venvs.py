"""Virtual environments as stacks: really made, by venv and pip, out of a folder of small wheels."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import wheels

from bench_lib.errors import Unavailable, UsageError
from bench_lib.stacking import environments, stacks, stock, venvs

VENV = """
[made]
kind = "venv"
requirements = ["triton==3.2.0"]
declared = { triton = "3.2.0" }
"""


class Kit:
    """A folder of wheels and a cache of the test's own."""

    def __init__(self, home: Path, needs: Path) -> None:
        self.home = home
        self.wheels = home / "wheels"
        self.wheels.mkdir()
        for wheel in needs.iterdir():
            (self.wheels / wheel.name).symlink_to(wheel)
        self.offer("3.2.0")
        self.write(VENV)
        self.said: list[str] = []

    def offer(self, version: str, says: str = "", requires: tuple[str, ...] = ()) -> None:
        module = f"__version__ = {says or version!r}\n"
        wheels.write(self.wheels, "triton", version, {"triton/__init__.py": module}, requires)

    def write(self, text: str) -> None:
        (self.home / "stacks.toml").write_text(text)

    def create(self) -> Path:
        return stock.create("made", self.wheels, self.said.append)

    def python(self, code: str) -> str:
        its = environments.environment(stacks.stack("made"))
        done = subprocess.run(
            [its.python, "-c", code], env=dict(its.variables), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def left(self) -> list[str]:
        """What is in the cache of stacks, but for the file that processes wait at."""
        found = (self.home / "cache/cuda-gains").glob("[sc]*/*")
        return sorted(path.name for path in found if not path.name.endswith(".lock"))


@pytest.fixture(scope="module")
def needs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the suite itself needs."""
    return wheels.write_needs(tmp_path_factory.mktemp("needs"))


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: Path) -> Kit:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(tmp_path / "stacks.toml"))
    return Kit(tmp_path, needs)


def test_an_environment_is_made_with_the_suite_in_it_and_taken_anew_for_other_pins(kit: Kit) -> None:
    folder = kit.create()
    assert folder == kit.home / "cache/cuda-gains/stacks/made"
    assert kit.said[0] == f"made: making an environment with {sys.executable}"
    assert [line for line in kit.said if "Installing collected packages" in line and "triton" in line]
    assert kit.said[-1] == "made: asking its libraries for their versions"
    assert kit.python("import sys; print(sys.prefix)") == str(folder)
    where = kit.python("import bench_lib, os; print(os.path.realpath(bench_lib.__file__))")
    assert where == str(Path(venvs.__file__).parents[1] / "__init__.py")  # this code, not a copy of it
    entry_points = "from importlib.metadata import entry_points as e; print(*e(name='cuda_gains'))"
    assert "bench_lib.plugin" in kit.python(entry_points)
    assert (folder / "bin/cuda-gains").is_file()
    assert "triton 3.2.0" in stock.described("made")["observed"].splitlines()

    kit.said.clear()
    kit.create()
    assert kit.said == ["made: asking its libraries for their versions"]  # it is there

    kit.offer("3.3.0")
    kit.write(VENV.replace("3.2.0", "3.3.0"))
    assert not stock.at_hand(stacks.stack("made"))
    kit.create()
    assert kit.python("import triton; print(triton.__version__)") == "3.3.0"
    stock.remove("made")
    assert kit.left() == []


def test_a_requirement_that_is_not_there_is_named_and_nothing_is_left(kit: Kit) -> None:
    kit.write(VENV.replace("triton==3.2.0", 'triton==3.2.0", "some-cupy==13.6.0'))
    with pytest.raises(Unavailable) as caught:
        kit.create()
    said = str(caught.value)
    assert said.startswith("some-cupy==13.6.0 of stack made is not in ")
    assert "\n" not in said
    assert kit.left() == []


def test_a_dependency_that_is_not_there_is_put_down_to_who_asks_for_it(kit: Kit) -> None:
    kit.offer("3.2.0", requires=("some-cudnn==9.1.0.70",))
    with pytest.raises(
        Unavailable, match=r"^triton==3\.2\.0 could not .*some-cudnn==9\.1\.0\.70 .*from triton"
    ):
        kit.create()
    assert kit.left() == []


def test_another_version_than_declared_is_refused_with_both(kit: Kit) -> None:
    kit.offer("3.2.0", says="3.2.1")
    with pytest.raises(UsageError, match=r"stack made declares triton 3\.2\.0, but 3\.2\.1 is loaded"):
        kit.create()
    assert kit.left() == []


def test_a_declared_package_that_does_not_import_is_named(kit: Kit) -> None:
    files = {"triton/__init__.py": "import no_such_module\n"}
    wheels.write(kit.wheels, "triton", "3.2.0", files)
    with pytest.raises(
        UsageError, match=r"triton does not import \(No module named 'no_such_module'\); it is declared"
    ):
        kit.create()
    assert kit.left() == []


def test_an_environment_that_cannot_measure_is_refused(kit: Kit) -> None:
    """A package that this suite needs may not go with the versions that are pinned."""
    (old,) = kit.wheels.glob("pyarrow-*.whl")
    old.unlink()
    files = {"pyarrow/__init__.py": "raise ImportError('pyarrow requires NumPy 2.0 or newer')\n"}
    wheels.write(kit.wheels, "pyarrow", old.name.split("-")[1], files)
    with pytest.raises(UsageError, match=r"pyarrow does not import \(.*NumPy 2.*\); it is needed to measure"):
        kit.create()
    assert kit.left() == []


def test_an_interpreter_that_is_not_there_or_makes_none(kit: Kit) -> None:
    kit.write(VENV + 'python = "python9.9"\n')
    with pytest.raises(UsageError, match=r"stack made wants the interpreter 'python9\.9'"):
        kit.create()
    script = kit.home / "python-broken"
    script.write_text("#!/bin/sh\necho ensurepip is not available\nexit 1\n")
    script.chmod(0o755)
    kit.write(VENV + f'python = "{script}"\n')
    with pytest.raises(UsageError, match=r"python-broken -m venv failed .ensurepip is not available"):
        kit.create()
    assert kit.left() == []


def test_what_a_kill_leaves_is_not_used_and_is_replaced(kit: Kit) -> None:
    code = (
        "import sys; from pathlib import Path; from bench_lib.stacking import stock\n"
        "stock.create('made', Path(sys.argv[1]), lambda line: print(line, flush=True))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(kit.wheels)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    for line in child.stdout:
        if "Collecting" in line or "Installing" in line:
            break
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    assert "made" in kit.left()
    assert not stock.at_hand(stacks.stack("made"))
    assert [row.here for row in stock.listing()] == ["yes", "no"]
    kit.create()
    assert stock.at_hand(stacks.stack("made"))


def test_two_processes_make_one_environment(kit: Kit) -> None:
    code = (
        "import sys; from pathlib import Path; from bench_lib.stacking import stacks, venvs\n"
        "venvs.create(stacks.stack('made'), Path(sys.argv[1]), print)"
    )
    command = [sys.executable, "-c", code, str(kit.wheels)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [child.communicate()[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(text.count("making an environment") for text in said) == [0, 1]
    assert stock.at_hand(stacks.stack("made"))
