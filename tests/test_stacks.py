"""stacks.toml is read strictly; a stack's library comes whole from a wheel or not at all."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bench_lib.errors import Unavailable, UsageError
from bench_lib.stacking import stacks, stock

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


SHIPPED = Path(__file__).parent.parent / "benchmarks" / "stacks.toml"


def test_shipped_runtimes_declare_what_they_pin() -> None:
    shipped = stacks.load_stacks(SHIPPED)
    versions = "11.7 11.8 12.0 12.1 12.2 12.3 12.4 12.5 12.6 12.8 12.9 13.0 13.1 13.2 13.3 13.4 13.5"
    runtimes = {name: entry for name, entry in shipped.items() if entry.kind == "cudart"}
    assert list(runtimes) == [f"cudart-{version}" for version in versions.split()]
    for name, entry in runtimes.items():
        version = name.removeprefix("cudart-")
        assert entry.declared == {"cudart": version}
        assert entry.requirements[0].partition("==")[2].startswith(f"{version}.")


def test_a_pin_that_was_not_checked_is_marked_where_it_stands() -> None:
    """PyTorch's own index was not reached, and every pin with a `+` is from there."""
    pins = [line for line in SHIPPED.read_text().splitlines() if re.search(r'"[\w-]+==[^"]*\+', line)]
    assert len(pins) == 4
    for line in pins:
        assert "# NOT checked" in line, line


def test_shipped_stacks_of_torch_are_a_bridge() -> None:
    shipped = stacks.load_stacks(SHIPPED)
    bridge = [name for name, entry in shipped.items() if entry.kind == "venv"]
    assert bridge == ["cu118", "cu124", "cu126", "cu126-t29", "cu130-t29"]
    for name in bridge:
        entry, cuda = shipped[name], name[2:4] + "." + name[4]
        pins = dict(pin.split("==") for pin in entry.requirements)
        assert entry.declared["torch"] in (pins["torch"], f"{pins['torch']}+cu124")
        assert entry.declared["torch.cuda"] == entry.declared["cudart"] == cuda
        assert entry.declared["cupy"] == pins[f"cupy-cuda{name[2:4]}x"] == "13.6.0"
        assert all(stacks.holds(entry, package) for package in ("torch", "cupy", "triton"))
        assert entry.extra_index.endswith(name.partition("-")[0]) or name == "cu124"
    old, new = shipped["cu118"].declared, shipped["cu124"].declared
    assert {key for key in old if old[key] != new[key]} == {"torch", "torch.cuda", "cudart"}


def test_shipped_native_stacks_pin_what_the_packing_tool_packs() -> None:
    shipped = stacks.load_stacks(SHIPPED)
    for name, major in (("native-11.8", "11"), ("native-12.4", "12")):
        entry = shipped[name]
        assert all(f"-cu{major}==" in pin for pin in entry.requirements)
        assert entry.declared["cudart"] == name.removeprefix("native-")
        versions = [pin.partition("==")[2] for pin in entry.requirements]
        said = [entry.declared[key] for key in ("cudart", "nvrtc", "cublas", "cudnn", "nccl")]
        assert all(v == d or v.startswith(f"{d}.") for v, d in zip(versions, said, strict=True))
        assert not any(stacks.holds(entry, package) for package in ("torch", "cupy", "triton"))


def test_the_entries_that_the_docs_show_are_entries(tmp_path: Path) -> None:
    text = (SHIPPED.parents[1] / "docs" / "stacks-and-campaigns.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    blocks += re.findall(r"cat > packed\.toml <<'END'\n(.*?)END\n", text, re.DOTALL)
    found = []
    for block in blocks:
        (tmp_path / "stacks.toml").write_text(block)
        found.append(stacks.load_stacks(tmp_path / "stacks.toml"))
    kinds, packed = found
    of_python = {"venv", "native", "cudart", "swap", "path", "here"}
    assert {entry.kind for entry in kinds.values()} == {*of_python, "container"}
    shipped = stacks.load_stacks(SHIPPED)
    for name in ("native-11.8", "native-12.4"):
        assert packed[name].declared == shipped[name].declared
        assert set(shipped[name].requirements) <= set(re.findall(r"[\w.-]+==[\w.+]+", text))  # to download
    named = set(re.findall(r"(?<=--stack )[\w.-]+", text))
    assert named <= set(shipped)
    pins = set(re.findall(r"[a-z][\w-]+==[\w.+]+", text))
    assert pins <= set(re.findall(r"[a-z][\w-]+==[\w.+]+", SHIPPED.read_text()))
    for name, entry in kinds.items():  # shortened, never other than what ships
        if name in shipped and entry.kind != "here":
            assert set(entry.requirements) <= set(shipped[name].requirements)
            assert entry.declared.items() <= shipped[name].declared.items()


def test_the_file_is_found_from_a_checkout_and_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_GAINS_STACKS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert "cudart-11.8" in stacks.load_stacks()  # of the checkout the package lies in
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "stacks.toml").write_text(CUDART)
    assert list(stacks.load_stacks()) == ["here", "cudart-12.4"]


VENV = '["a"]\nkind = "venv"\nrequirements = ["numpy==2.2.6"]\ndeclared = { numpy = "2.2.6" }\n'
SWAP = """
["b"]
kind = "swap"
base = "here"
library = "cudnn"
requirements = ["nvidia-cudnn-cu12==9.5.1.17"]
declared = { cudnn = "9.5.1" }
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VENV.replace("requirements", "requires"), "unknown key 'requires'; did you mean 'requirements'"),
        (VENV + 'extra-index = "x"\n', "unknown key 'extra-index'; did you mean 'extra_index'"),
        (VENV + 'extra_index = "https://me:secret@example.org/simple"\n', "has a password in extra_index"),
        (VENV + "python = 3.12\n", "has python 3.12, expected text"),
        (VENV.replace('["numpy==2.2.6"]', "[]"), "has no requirements"),
        (VENV.replace("{ numpy", "{ numpi"), "declares the unknown 'numpi'; did you mean 'numpy'"),
        (SWAP.replace('"here"', '"hear"'), "has the base 'hear', which is not there; did you mean 'here'"),
        (SWAP.replace('"here"', '"cudart-12.4"') + CUDART, "of kind cudart; a library is exchanged in"),
        (
            SWAP.replace('= "cudnn"', '= "cufft"'),
            "has library 'cufft', expected one of cudart, cublas, cudnn",
        ),
        (SWAP.replace("{ cudnn", "{ nccl"), "does not declare the version of its cudnn"),
        (SWAP.replace('17"]', '17", "x==1"]'), "needs exactly one requirement, 2 are named"),
        ('["c"]\nkind = "path"\ndeclared = {}\n', "lacks the key 'folder'"),
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
        (f"a = {'[' * 5000}", "not valid TOML"),
        (VENV.replace('"numpy==2.2.6"', '"--index-url==x"'), "exact pins NAME==VERSION"),
        (
            '["c"]\nkind = "path"\nfolder = "a\\u0000b"\ndeclared = {}\n',
            "has folder 'a\\x00b', expected",
        ),
        ('["c"]\nkind = "path"\nfolder = "~nobody-here/c"\ndeclared = {}\n', "cannot be followed"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(home: Path, text: str, said: str) -> None:
    (home / "stacks.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        stacks.load_stacks()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


PATH = '["c"]\nkind = "path"\nfolder = "c"\npython = "python3"\ndeclared = {}\n'


@pytest.mark.parametrize("text", [VENV + 'extra_index = "x"\npython = "y"\n', CUDART, SWAP, PATH])
def test_a_value_of_any_wrong_type_is_refused_in_one_sentence(home: Path, text: str) -> None:
    """Every key of an entry with every type that TOML has; `declared` may be a table, pins a list."""
    head, *lines = text.strip().splitlines()
    for at, line in enumerate(lines):
        key = line.partition(" = ")[0]
        right = {"declared": "{}", "requirements": "[]"}.get(key)
        for value in ("[]", "{}", "1", "1.5", "true", "1979-05-27", '[["a"]]', "{ a = 1 }", '""', "nan"):
            if value == right:
                continue
            changed = [head, *lines[:at], f"{key} = {value}", *lines[at + 1 :]]
            (home / "stacks.toml").write_text("\n".join(changed))
            with pytest.raises(UsageError) as caught:
                stacks.load_stacks()
            assert "\n" not in str(caught.value)


def test_an_unknown_stack_names_the_nearest(home: Path) -> None:
    with pytest.raises(UsageError, match=r"no stack 'cudart-124'; did you mean 'cudart-12\.4'"):
        stacks.stack("cudart-124")
    with pytest.raises(UsageError, match="cannot be read"):
        stacks.load_stacks(home / "nowhere.toml")


def test_a_swap_may_stand_before_its_base_and_promises_what_both_do(home: Path) -> None:
    path = home / "stacks.toml"
    path.write_text(
        SWAP.replace('"here"', '"a"') + VENV.replace("{ n", '{ torch = "2.6.0", cudnn = "9.1.0", n')
    )
    entry = stacks.stack("b")
    assert entry.base == stacks.stack("a")
    assert list(stacks.load_stacks()) == ["here", "b", "a"]
    assert stacks.declared(entry) == {"torch": "2.6.0", "numpy": "2.2.6", "cudnn": "9.5.1"}
    assert stacks.holds(entry, "torch")
    assert not stacks.holds(entry, "cupy")
    assert entry.pins == ("base a", "numpy==2.2.6", "nvidia-cudnn-cu12==9.5.1.17")


def test_a_folder_is_meant_from_where_the_file_lies(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "stacks.toml").write_text('["c"]\nkind = "path"\nfolder = "down/c"\ndeclared = {}\n')
    monkeypatch.chdir(home)
    monkeypatch.setenv("CUDA_GAINS_STACKS", "stacks.toml")
    assert stacks.stack("c").folder == home / "down" / "c"


def test_a_cudart_stack_holds_no_torch_whatever_is_installed(home: Path) -> None:
    assert stacks.holds(stacks.stack("here"), "torch")
    assert not stacks.holds(stacks.stack("cudart-12.4"), "torch")
    assert not stacks.holds(stacks.stack("cudart-12.4"), "cupy")


def test_a_library_comes_out_of_a_wheel_once(home: Path) -> None:
    entry, wheels = stacks.stack("cudart-12.4"), home / "wheels"
    make_wheel(wheels, version="12.4.2")
    assert not stock.at_hand(entry, wheels)
    make_wheel(wheels)
    assert stock.at_hand(entry, wheels)
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
    assert not stock.at_hand(entry)
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
        "import sys; from pathlib import Path; from bench_lib.stacking import stock\n"
        "print(stock.create('cudart-12.4', Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(home / "wheels")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    paths = {child.communicate()[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * 4
    assert len(paths) == 1
    assert Path(paths.pop()).stat().st_size == 1_000_000
