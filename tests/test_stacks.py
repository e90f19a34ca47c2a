"""stacks.toml is read strictly; a stack's library comes whole from a wheel or not at all."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bench_lib import stacks, stock
from bench_lib.errors import Unavailable, UsageError

CUDART = """
["cudart-12.4"]
kind = "cudart"
requirements = ["some-runtime==12.4.1"]
declared = {cudart = "12.4"}
"""
LIBRARY = "nvidia/cuda_runtime/lib/libcudart.so.12"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a stacks file of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "stacks.toml").write_text(CUDART)
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(tmp_path / "stacks.toml"))
    return tmp_path


def make_wheel(
    folder: Path, library: bytes = b"a library", version: str = "12.4.1", member: str = LIBRARY
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"some_runtime-{version}-py3-none-any.whl"
    info = f"some_runtime-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, library)
        archive.writestr("nvidia/cuda_runtime/include/cuda.h", "")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: some-runtime\nVersion: {version}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def files_under(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_shipped_stacks_are_here_and_the_runtimes() -> None:
    shipped = stacks.load_stacks(Path(__file__).parent.parent / "benchmarks" / "stacks.toml")
    versions = "11.7 11.8 12.0 12.1 12.2 12.3 12.4 12.5 12.6 12.8 12.9 13.0 13.1 13.2 13.3 13.4 13.5"
    assert list(shipped) == ["here", *(f"cudart-{version}" for version in versions.split())]
    for name, entry in shipped.items():
        if name != "here":
            version = name.removeprefix("cudart-")
            assert entry.declared == {"cudart": version}
            assert entry.requirements[0].partition("==")[2].startswith(f"{version}.")


def test_the_file_is_found_from_a_checkout_and_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_GAINS_STACKS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "cudart-11.8" in stacks.load_stacks()  # of the checkout the package lies in
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "stacks.toml").write_text(CUDART)
    assert list(stacks.load_stacks()) == ["here", "cudart-12.4"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            CUDART.replace("requirements", "requirments"),
            "unknown key 'requirments'; did you mean 'requirements'",
        ),
        (CUDART.replace('"cudart"\n', '"cudarts"\n'), "has kind 'cudarts', expected one of here, cudart"),
        (CUDART.replace('["cudart-12.4"]', "[cudart-12.4]"), "needs quotes"),
        (CUDART.replace("==12.4.1", ">=12.4.1"), "exact pins NAME==VERSION"),
        (CUDART.replace('"12.4"}', "12.4}"), "expected versions as text"),
        (CUDART.replace("{cudart", "{cudar"), "declared = { cudart = VERSION }"),
        (CUDART.replace('declared = {cudart = "12.4"}', ""), "lacks the key 'declared'"),
        ('["../away"]\nkind = "here"\n', "folder name"),
        ("kind = 'here'\n", "is not a stack"),
        ("[here\n", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(home: Path, text: str, said: str) -> None:
    (home / "stacks.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        stacks.load_stacks()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_stack_names_the_nearest(home: Path) -> None:
    with pytest.raises(UsageError, match=r"no stack 'cudart-124'; did you mean 'cudart-12\.4'"):
        stacks.stack("cudart-124")
    with pytest.raises(UsageError, match="cannot be read"):
        stacks.load_stacks(home / "nowhere.toml")


def test_a_cudart_stack_holds_no_torch_whatever_is_installed(home: Path) -> None:
    assert stacks.holds(stacks.stack("here"), "torch")
    assert not stacks.holds(stacks.stack("cudart-12.4"), "torch")
    assert not stacks.holds(stacks.stack("cudart-12.4"), "cupy")


def test_a_library_comes_out_of_a_wheel_once(home: Path) -> None:
    entry, wheels = stacks.stack("cudart-12.4"), home / "wheels"
    make_wheel(wheels, version="12.4.2")
    assert not stacks.at_hand(entry, wheels)
    make_wheel(wheels)
    assert stacks.at_hand(entry, wheels)
    library = stacks.cached_library(entry, wheels)
    assert library == home / "cache/cuda-gains/stacks/cudart-12.4/libcudart.so.12"
    assert library.read_bytes() == b"a library"
    assert stacks.cached_library(entry) == library  # the wheels are not needed any more
    assert [row.here for row in stock.listing()] == ["yes", "yes"]


def test_another_pin_replaces_the_cached_library(home: Path) -> None:
    make_wheel(home / "wheels")
    make_wheel(home / "wheels", b"newer", version="12.4.2")
    stock.create("cudart-12.4", home / "wheels")
    (home / "stacks.toml").write_text(CUDART.replace("12.4.1", "12.4.2"))
    entry = stacks.stack("cudart-12.4")
    assert not stacks.at_hand(entry)
    assert stacks.cached_library(entry, home / "wheels").read_bytes() == b"newer"


def test_a_stack_that_is_not_there_names_the_command(home: Path) -> None:
    with pytest.raises(Unavailable, match=r"cuda-gains stacks create cudart-12\.4"):
        stacks.cached_library(stacks.stack("cudart-12.4"), home)
    with pytest.raises(UsageError, match="no files in the cache"):
        stock.remove("cudart-12.4")
    with pytest.raises(UsageError, match="nothing to create"):
        stock.create("here")


@pytest.mark.parametrize("damage", ["empty", "cut", "no library", "two libraries"])
def test_a_bad_wheel_leaves_the_cache_as_it_was(home: Path, damage: str) -> None:
    wheel = make_wheel(home / "wheels", b"x" * 5000)
    if damage == "empty":
        wheel.write_bytes(b"")
    elif damage == "cut":
        wheel.write_bytes(wheel.read_bytes()[:2000])
    elif damage == "no library":
        make_wheel(home / "wheels", member="nvidia/lib/libother.so.12")
    else:
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr("other/libcudart.so.12", b"")
    with pytest.raises(UsageError, match=r"some_runtime-12\.4\.1"):
        stock.create("cudart-12.4", home / "wheels")
    assert files_under(home / "cache") == []


def test_a_cache_that_cannot_be_made_is_named(home: Path) -> None:
    make_wheel(home / "wheels")
    (home / "cache").write_text("a file where the cache should be")
    with pytest.raises(UsageError, match=r"cache/cuda-gains/stacks cannot be made .* set XDG_CACHE_HOME"):
        stock.create("cudart-12.4", home / "wheels")


def test_a_wheel_cannot_write_outside_the_cache(home: Path) -> None:
    make_wheel(home / "wheels", member="../../../libcudart.so.12")
    stock.create("cudart-12.4", home / "wheels")
    stored = "cuda-gains/stacks/cudart-12.4/"
    assert files_under(home / "cache") == [f"{stored}libcudart.so.12", f"{stored}requirement"]
    assert list(home.glob("*.so*")) == []


def test_create_fetches_with_pip_and_remove_removes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(home / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(home / "index"))
    said: list[str] = []
    assert stock.create("cudart-12.4", progress=said.append).read_bytes() == b"a library"
    assert said == ["cudart-12.4: fetching some-runtime==12.4.1"]
    assert stock.create("cudart-12.4", progress=said.append).is_file()
    assert len(said) == 1  # once only
    stock.remove("cudart-12.4")
    assert files_under(home / "cache") == []


def test_a_failed_fetch_names_the_requirement_and_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unavailable, match=r"^some-runtime==12\.4\.1 could not be fetched .*--wheels DIR$"):
        stock.create("cudart-12.4")
    assert files_under(home / "cache") == []


def test_two_processes_may_create_one_stack_at_once(home: Path) -> None:
    make_wheel(home / "wheels", b"x" * 1_000_000)
    code = (
        "import sys; from pathlib import Path; from bench_lib import stock\n"
        "print(stock.create('cudart-12.4', Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(home / "wheels")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    paths = {child.communicate()[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * 4
    assert len(paths) == 1
    assert Path(paths.pop()).stat().st_size == 1_000_000
