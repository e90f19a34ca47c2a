"""The wheel, built from the sdist as an installer would: what it carries, and that it reads results alone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import synthetic

from bench_lib import __version__

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "bench_lib", "benchmarks")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = "Programming Language :: Python :: "
PYTHONS = [line.removeprefix(VERSION) for line in PROJECT["classifiers"] if line.startswith(VERSION)]
LISTS = ("claims.toml", "stacks.toml")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network, from a copy: a build leaves folders behind."""
    source, out = (tmp_path_factory.mktemp(name) for name in ("source", "dist"))
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in out.glob("*.tar.gz")] == [f"cuda_gains-{__version__}.tar.gz"]
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a fresh environment with the wheel, to which this Python lends what the wheel needs."""
    made = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", made, check=True)
    python = made / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--quiet")
    run(*pip, wheel, check=True)
    (site,) = made.glob("lib/python3.*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    return made / "bin" / "cuda-gains"


def run(
    *command: str | Path, check: bool = False, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A process that sees nothing of this checkout by its environment."""
    ours = ("PYTHON", "CUDA_GAINS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        list(map(str, command)), check=check, cwd=cwd, env=kept, capture_output=True, text=True
    )


def test_it_carries_what_reading_needs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in LISTS:
            (held,) = [one for one in names if one.endswith(f"/benchmarks/{name}")]
            assert archive.read(held) == (ROOT / "benchmarks" / name).read_bytes()
    tops = {name.partition("/")[0] for name in names}
    stem = f"cuda_gains-{__version__}"
    assert tops == {"bench_lib", f"{stem}.data", f"{stem}.dist-info"}
    files = (path for path in (ROOT / "bench_lib").rglob("*") if path.is_file())
    there = {path.relative_to(ROOT).as_posix() for path in files if path.parent.name != "__pycache__"}
    assert there == {name for name in names if name.startswith("bench_lib/")}


def test_its_metadata_says_what_is_true(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        said = Parser().parsestr(archive.read(name).decode())
    assert PROJECT["dynamic"] == ["version"]  # which stands in bench_lib/__init__.py alone
    assert (said["Version"], said["License-Expression"]) == (__version__, "Apache-2.0")
    assert said["Requires-Python"] == f">={PYTHONS[0]}"
    assert f"/cuda_gains-{__version__}-py3-none-any.whl[report]" in (ROOT / "docs" / "report.md").read_text()
    assert f"Python {PYTHONS[0]} or newer" in (ROOT / "README.md").read_text()


def test_every_extra_that_a_document_names_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = [word for page in pages for word in re.findall(r"\.\[([a-z\d,-]+)\]", page.read_text())]
    assert named
    assert {extra for word in named for extra in word.split(",")} <= PROJECT["optional-dependencies"].keys()


def test_it_reads_results_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    synthetic.write_campaign(tmp_path / "results", "c", {"a": 1.0, "b": 1.0}, rounds=6)
    for arguments, code, said in (
        ("--version", 0, f"cuda-gains {__version__}"),
        ("stacks list", 0, "cudart-12.4"),
        ("compare a b --campaign c", 0, "same"),
        ("claims --campaign c", 0, "launch-latency-small-kernels"),
        ("report a b --campaign c -o page.html", 0, "page.html"),
        ("doctor --json --timeout 1", None, '"checks"'),  # the code is the machine's
        ("run --stack here", 2, "measuring needs the benchmark files of a checkout"),
    ):
        done = run(installed, *arguments.split(), cwd=tmp_path)
        assert code in (done.returncode, None), f"{arguments}: {done.stdout}{done.stderr}"
        assert said in done.stdout + done.stderr
    assert "launch/" in (tmp_path / "page.html").read_text()


def interpreter(version: str) -> str:
    """A Python of this version on this machine; skipped where there is none."""
    managed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for path in (*managed, shutil.which(f"python{version}")):
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        if path and run(path, "-c", asked).stdout.strip() == version:
            return str(path)
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.parametrize("version", PYTHONS)
def test_every_supported_python_compiles_all_of_it(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    folders = [ROOT / name for name in ("bench_lib", "benchmarks")]
    code = (
        "import pathlib, sys\n"
        "for path in (p for folder in sys.argv[1:] for p in pathlib.Path(folder).rglob('*.py')):\n"
        "    compile(path.read_bytes(), str(path), 'exec')\n"
    )
    done = run(python, "-W", "error", "-c", code, *folders)
    assert done.returncode == 0, done.stderr


def oldest() -> list[str]:
    """Each requirement of reading at its lower bound, as pip's constraints."""
    needs = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["report"]]
    return [need.replace(">=", "==") for need in needs]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "constraints"), [(PYTHONS[0], oldest()), *((version, []) for version in PYTHONS)]
)
def test_every_supported_python_reads_results(
    version: str, constraints: list[str], wheel: Path, tmp_path: Path
) -> None:
    """With the oldest and the newest packages of an index; skipped where none is reached."""
    run(interpreter(version), "-m", "venv", tmp_path / "venv", check=True)
    bin_ = tmp_path / "venv" / "bin"
    held = tmp_path / "constraints.txt"
    held.write_text("\n".join(constraints))
    install = (bin_ / "python", "-m", "pip", "install", "--quiet", "--constraint", held)
    done = run(*install, f"{wheel}[report]")
    if done.returncode:
        pytest.skip(f"the extra `report` cannot be installed here: {done.stderr[-300:]}")
    synthetic.write_campaign(tmp_path / "results", "c", {"a": 1.0, "b": 1.0}, rounds=6)
    for arguments in ("compare a b --campaign c", "report a b --campaign c -o page.html"):
        read = run(bin_ / "cuda-gains", *arguments.split(), cwd=tmp_path)
        assert read.returncode == 0, read.stderr
