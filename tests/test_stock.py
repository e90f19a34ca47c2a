"""Stacks of CUDA libraries alone: out of wheels, asked for their versions, found by path; list and remove."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_cudnn
import pytest
import wheels

from bench_lib.convolution.cudnn_libraries import locate_cudnn
from bench_lib.device import cudart
from bench_lib.errors import NotApplicable, Unavailable, UsageError
from bench_lib.stacking import cache, environments, stacks, stock

PINS = ["some-cudart==12.4.127", "some-cublas==12.4.5.8", "some-cudnn==9.1.0.70", "some-nccl==2.21.5"]
NATIVE = f"""
["native-12.4"]
kind = "native"
requirements = {PINS}
declared = {{ cudart = "12.4", cudnn = "9.1.0", nccl = "2.21.5" }}
"""


class Kit:
    """A folder of wheels, one library package each, and a cache."""

    def __init__(self, home: Path, cudnn_site: Path) -> None:
        self.home = home
        self.wheels = home / "wheels"
        self.write(NATIVE)
        runtime = wheels.runtime(home / "built/libcudart.so.12", "12.4")
        self.put(PINS[0], {"nvidia/cuda_runtime/lib/libcudart.so.12": runtime, "nvidia/include/cuda.h": None})
        for pin, part in ((PINS[1], "cublas"), (PINS[2], "cudnn")):
            found = sorted(cudnn_site.glob(f"nvidia/{part}/lib/*"))
            self.put(pin, {str(path.relative_to(cudnn_site)): path for path in found})
        nccl = "int ncclGetVersion(int *v) { *v = 22105; return 0; }"
        self.put(PINS[3], {"nvidia/nccl/lib/libnccl.so.2": wheels.library(home / "built/libnccl.so.2", nccl)})

    def write(self, text: str) -> None:
        (self.home / "stacks.toml").write_text(text)

    def put(self, pin: str, files: dict[str, Path | None]) -> None:
        content = {place: path.read_bytes() if path else b"" for place, path in files.items()}
        wheels.write(self.wheels, *pin.split("=="), files=content)

    def create(self, **options: Any) -> Path:
        return stock.create("native-12.4", self.wheels, **options)

    @property
    def cache(self) -> Path:
        return self.home / "cache/cuda-gains"

    def left(self) -> list[Path]:
        return list((self.cache / "stacks").glob("*"))


@pytest.fixture(scope="module")
def cudnn_site(fake_cuda_built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("cudnn")
    fake_cudnn.build(site)
    return site


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cudnn_site: Path) -> Kit:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_GAINS_STACKS", str(tmp_path / "stacks.toml"))
    return Kit(tmp_path, cudnn_site)


def test_a_native_stack_comes_out_of_its_wheels_and_is_asked(kit: Kit) -> None:
    said: list[str] = []
    folder = kit.create(progress=said.append)
    assert folder == kit.cache / "stacks/native-12.4"
    assert said == ["native-12.4: asking its libraries for their versions"]
    assert (folder / "nvidia/cudnn/lib/libcudnn_graph.so.9").is_file()
    assert not (folder / "nvidia/include").exists()  # libraries only
    shown = stock.described("native-12.4")
    assert {"cudart 12.4", "cudnn 9.1.0", "nccl 2.21.5"} <= set(shown["observed"].splitlines())
    assert "torch" not in shown["observed"]
    assert shown["check"] == "what is declared is what is there"


def test_its_libraries_are_found_by_path(kit: Kit) -> None:
    folder, entry = kit.create(), stacks.stack("native-12.4")
    assert cudart.of_stack(entry) == folder / "nvidia/cuda_runtime/lib/libcudart.so.12"
    found = locate_cudnn(entry)
    assert found.cudnn == folder / "nvidia/cudnn/lib/libcudnn.so.9"
    assert folder / "nvidia/cublas/lib" in found.folders
    assert list(stacks.libraries(entry, "libnccl.so.*")) == [folder / "nvidia/nccl/lib/libnccl.so.2"]


def test_a_stack_without_a_library_says_so(kit: Kit) -> None:
    kit.write(NATIVE.replace(str(PINS), str(PINS[3:])).replace('cudart = "12.4", cudnn = "9.1.0", ', ""))
    kit.create()
    entry = stacks.stack("native-12.4")
    with pytest.raises(NotApplicable, match=r"native-12\.4 holds no cuDNN"):
        locate_cudnn(entry)
    with pytest.raises(Unavailable, match=r"native-12\.4 has no libcudart"):
        cudart.of_stack(entry)


def test_another_version_than_declared_is_refused_with_both(kit: Kit) -> None:
    kit.write(NATIVE.replace("9.1.0", "9.5.1").replace("cudnn==9.5.1.70", "cudnn==9.1.0.70"))
    with pytest.raises(
        UsageError, match=r"declares cudnn 9\.5\.1, but 9\.1\.0 is loaded from .*libcudnn\.so"
    ):
        kit.create()
    assert kit.left() == []


def test_a_missing_wheel_is_named_and_nothing_is_left(kit: Kit) -> None:
    kit.write(NATIVE.replace("some-nccl==2.21.5", "some-nccl==2.22.3"))
    with pytest.raises(Unavailable, match=r"^some-nccl==2\.22\.3 of stack native-12\.4 is not in .*wheels"):
        kit.create()
    assert kit.left() == []


def test_a_failed_fetch_names_its_requirement_and_leaves_nothing(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(kit.wheels))
    kit.write(NATIVE.replace("some-nccl==2.21.5", "some-nccl==2.22.3"))
    said: list[str] = []
    with pytest.raises(Unavailable, match=r"^some-nccl==2\.22\.3 could not be fetched"):
        stock.create("native-12.4", progress=said.append)
    assert said == [f"native-12.4: fetching {pin}" for pin in (*PINS[:3], "some-nccl==2.22.3")]
    assert kit.left() == []


def test_a_library_that_does_not_load_is_named(kit: Kit) -> None:
    kit.put(PINS[3], {"nvidia/nccl/lib/libnccl.so.2": kit.home / "stacks.toml"})
    with pytest.raises(UsageError, match=r"libnccl\.so\.2 cannot be loaded"):
        kit.create()
    assert kit.left() == []


def test_a_wheel_without_libraries_is_refused(kit: Kit) -> None:
    kit.put(PINS[3], {"nvidia/../../lib/libnccl.so.2": None, "lib/libnccl.so.2": None})
    with pytest.raises(UsageError, match=r"some_nccl-2\.21\.5-.* holds no library in nvidia/\*/lib"):
        kit.create()
    assert kit.left() == []


def test_other_pins_replace_what_is_cached(kit: Kit) -> None:
    kit.create()
    kit.write(NATIVE.replace("some-nccl==2.21.5", "some-nccl==2.22.3").replace("2.21.5", "2.22.3"))
    assert not stock.at_hand(stacks.stack("native-12.4"))
    newer = "int ncclGetVersion(int *v) { *v = 22203; return 0; }"
    library = wheels.library(kit.home / "built/newer/libnccl.so.2", newer)
    kit.put("some-nccl==2.22.3", {"nvidia/nccl/lib/libnccl.so.2": library})
    kit.create()
    assert "nccl 2.22.3" in stock.described("native-12.4")["observed"].splitlines()


def test_list_show_and_remove_by_the_command(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("COLUMNS", "200")
        code = "from bench_lib.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, "stacks", *words], capture_output=True, text=True, check=False
        )

    assert command("list").stdout.splitlines()[2].split()[-1] == "no"
    assert "make it with `cuda-gains stacks create native-12.4`" in command("show", "native-12.4").stdout
    made = command("create", "native-12.4", "--wheels", str(kit.wheels))
    assert made.stdout == f"native-12.4: {kit.cache / 'stacks/native-12.4'}\n"
    assert made.stderr == "native-12.4: asking its libraries for their versions\n"
    assert command("list").stdout.splitlines()[2].split()[-1] == "yes"
    environments.environment(stacks.stack("native-12.4"))  # which makes folders for compiled code
    assert command("remove", "native-12.4").stdout == "native-12.4: removed\n"
    assert kit.left() == list((kit.cache / "compiled").glob("*")) == []
    again = command("remove", "native-12.4")
    assert again.returncode == 2
    assert again.stderr.startswith("cuda-gains: stack 'native-12.4' has no files in the cache")


def test_all_missing_wheels_are_named_at_once(kit: Kit) -> None:
    more = (
        '["later"]\nkind = "cudart"\nrequirements = ["other-cudart==13.0"]\ndeclared = { cudart = "13.0" }\n'
    )
    kit.write(NATIVE.replace("nccl==2.21.5", "nccl==2.22.3").replace("cublas==12.4.5.8", "cublas==0") + more)
    entries = [stacks.stack("native-12.4"), stacks.stack("later")]
    said = (
        r"some-cublas==0, some-nccl==2\.22\.3 of stack native-12\.4; other-cudart==13\.0 of stack later are"
    )
    with pytest.raises(Unavailable, match=rf"^{said} not in .*wheels; put their wheels for \w+ there$"):
        stock.require_wheels(entries, kit.wheels)
    assert kit.left() == []


def test_a_folder_of_wheels_that_is_not_there_is_said_to_be_missing(kit: Kit) -> None:
    with pytest.raises(UsageError, match=r"folder of --wheels, .*nowhere, does not exist"):
        stock.create("native-12.4", kit.home / "nowhere")
    with pytest.raises(UsageError, match=r"folder of --wheels, .*stacks\.toml, is not a folder"):
        stock.create("native-12.4", kit.home / "stacks.toml")


def test_a_wheel_with_a_local_version_is_one_of_its_version(kit: Kit) -> None:
    kit.put("some-torch==2.6.0+cu118", {})
    assert cache.find_wheel("some-torch[all]==2.6.0", kit.wheels) is not None
    assert cache.find_wheel("some-torch==2.6", kit.wheels) is None


PACKED = """
["packed"]
kind = "path"
folder = "packed"
declared = { cudart = "11.8", nvrtc = "11.8", python = "3" }
"""


def test_an_empty_packed_folder_is_not_certified(kit: Kit) -> None:
    kit.write(PACKED)
    (kit.home / "packed").mkdir()
    (kit.home / "packed/activate").touch()
    where = f"{kit.home}/packed"
    said = f"stack packed declares cudart 11.8, nvrtc 11.8, but none of them was found in {where}; correct"
    assert stock.described("packed")["check"].startswith(said)
    with pytest.raises(UsageError, match="none of them was found"):
        stock.create("packed")


def test_a_native_stack_that_declares_what_no_wheel_holds_is_refused(kit: Kit) -> None:
    kit.write(NATIVE.replace("declared = {", 'declared = { cublas = "12.4.5",'))
    with pytest.raises(
        UsageError, match=r"declares cublas 12\.4\.5, but none was found in .*native-12\.4; correct"
    ):
        kit.create()
    assert kit.left() == []


def test_a_path_stack_without_its_folder_is_told_so(kit: Kit) -> None:
    kit.write(PACKED)
    shown = stock.described("packed")["here"]
    assert shown.startswith(f"no; there is no {kit.home}/packed/activate: unpack the stack there")
    assert "stacks create" not in shown
    with pytest.raises(UsageError, match="stack packed is not here; there is no "):
        stock.require(stacks.stack("packed"))
