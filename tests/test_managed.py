"""Managed memory through runtimes of several versions: the form of each call, and the bounds."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import fake_managed as fake
import pytest
from fake_cuda import compiler

from bench_lib.device.cudart import Runtime
from bench_lib.errors import CudaError, Unavailable, UsageError
from bench_lib.memory.managed import GIB, Advice, Managed, form

OLD, V2, NEW = ("11.8", "12.1"), ("12.2", "12.4"), ("13.0", "13.5")
DEVICE, HOST = 1, 2  # cudaMemLocationType
STREAM = 0x51
POINTER, NBYTES = 0x7F0000200000, 5 << 20


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    if compiler() is None:
        pytest.skip("no C compiler: the pretended runtimes cannot be built")
    return tmp_path_factory.mktemp("fake_managed")


@pytest.fixture
def library(built, version) -> Path:
    """A pretended runtime that says it has that version; without a driver CUDA 11 cannot say it."""
    return fake.build_runtime(built, version)


@pytest.fixture
def managed(library, version) -> Managed:
    loaded = SimpleNamespace(path=library, version=version) if version < "12" else Runtime.load(library)
    assert loaded.version == version
    return Managed(loaded, device=3)


def called(library: Path) -> dict[str, object]:
    call = fake.last_call(library)
    return {name: getattr(call, name) for name, *_ in fake.Call._fields_}


def expected(**fields: object) -> dict[str, object]:
    call = {"pointer": POINTER, "count": NBYTES, "advice": 0, "type": 0, "id": 0, "flags": 0, "stream": None}
    return {**call, **fields}


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize(("to", "device"), [("gpu", 3), ("cpu", -1)])
def test_old_runtimes_take_a_device_number_and_minus_one_for_the_cpu(managed, library, to, device):
    getattr(managed, f"prefetch_to_{to}")(POINTER, NBYTES, STREAM)
    assert called(library) == expected(name=b"cudaMemPrefetchAsync", stream=STREAM, id=device)


@pytest.mark.parametrize("version", V2 + NEW)
@pytest.mark.parametrize(("to", "place"), [("gpu", (DEVICE, 3)), ("cpu", (HOST, 0))])
def test_newer_runtimes_take_a_location(managed, library, version, to, place):
    getattr(managed, f"prefetch_to_{to}")(POINTER, NBYTES, STREAM)
    name = b"cudaMemPrefetchAsync_v2" if version < "13" else b"cudaMemPrefetchAsync"
    assert called(library) == expected(name=name, stream=STREAM, type=place[0], id=place[1])


@pytest.mark.parametrize("version", OLD + V2 + NEW)
@pytest.mark.parametrize("advice", list(Advice))
def test_advice_reaches_every_runtime_and_is_taken_back(managed, library, version, advice):
    place = {"type": 0 if version in OLD else DEVICE, "id": 3}
    for act, number in ((managed.advise, advice), (managed.unadvise, advice + 1)):
        act(POINTER, NBYTES, advice)
        name = b"cudaMemAdvise_v2" if version in V2 else b"cudaMemAdvise"
        assert called(library) == expected(name=name, advice=number, **place)


def test_the_old_call_on_a_cuda_13_runtime_would_be_wrong(built):
    """What the choice is for: the fake's parameters are those of the header, and it refuses this."""
    library = fake.build_runtime(built, "13.0")
    wrong = Managed(SimpleNamespace(path=library, version="12.1"))
    with pytest.raises(CudaError, match="cudaMemPrefetchAsync failed"):
        wrong.prefetch_to_cpu(POINTER, NBYTES, STREAM)
    assert fake.last_error(library) == 0, "cudart remembered an error that torch would find later"


@pytest.mark.parametrize("version", ["10.2", "14.0"])
def test_an_unknown_major_is_refused(version):
    with pytest.raises(UsageError, match=f"libcudart {version} may take other arguments"):
        form(version)


@pytest.mark.parametrize("version", ["11.8", "13.0"])
def test_memory_is_allocated_counted_and_freed(managed, library):
    with managed.memory(NBYTES) as address:
        assert called(library)["flags"] == 1, "cudaMemAttachGlobal"
        assert (managed.nbytes, bool(address)) == (NBYTES, True)
    assert called(library)["name"] == b"cudaFree"
    assert managed.nbytes == 0


@pytest.mark.parametrize("version", ["13.0"])
def test_never_more_than_four_gib_in_all(managed):
    with managed.memory(4096), pytest.raises(UsageError, match="at most 4294967296"):
        managed.check_room(4 * GIB)


@pytest.mark.parametrize("version", ["13.0"])
def test_never_more_than_half_of_the_free_memory(managed, monkeypatch):
    monkeypatch.setenv("FAKE_FREE_NBYTES", str(2 * NBYTES))
    with managed.memory(NBYTES), pytest.raises(Unavailable, match="more than half"):
        managed.allocate(4096)


REAL = sorted(Path(entry) for entry in sys.path if (Path(entry) / "nvidia").is_dir())


@pytest.mark.parametrize("folder", REAL[:1])
def test_the_real_runtime_here_has_the_names_of_its_form(folder):
    """The installed libcudart exports what `form` chose for its version."""
    library = next(iter(sorted(folder.glob("nvidia/*/lib/libcudart.so.1[23]"))), None)
    if library is None:
        pytest.skip("no libcudart of CUDA 12 or 13 is installed here")
    code = (
        "import sys; from pathlib import Path; from bench_lib.device.cudart import Runtime\n"
        "from bench_lib.memory.managed import form\n"
        "runtime = Runtime.load(Path(sys.argv[1])); chosen = form(runtime.version)\n"
        "print(all(map(runtime.address, (chosen.prefetch, chosen.advise))))"
    )
    done = subprocess.run([sys.executable, "-c", code, library], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
