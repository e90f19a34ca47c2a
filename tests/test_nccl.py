"""NCCL by path without a GPU: its signatures, its log, where it lies; the numbers that are checked."""

import contextlib
import ctypes
import re
import subprocess
import sys
from pathlib import Path

import fake_nccl
import numpy as np
import pytest

from bench_lib.collectives import pattern
from bench_lib.collectives.asked import OPS, Collective, calls, sizes
from bench_lib.collectives.sweep import Faults, doubts
from bench_lib.errors import Crashed, NotApplicable, Unavailable, UsageError, WrongResult
from bench_lib.nccl import found
from bench_lib.nccl.library import Nccl, versions
from bench_lib.nccl.log import Choice, choices
from bench_lib.stacking import stacks
from bench_lib.stacking.stacks import StackEntry
from bench_lib.units import nccl_version_text

with contextlib.suppress(ImportError):
    import torch  # noqa: F401  # before a pretended NCCL is loaded here, which lacks what torch asks of its own

# --- the signatures, against NVIDIA's own header

_PASSED_AS = [(r"\*", ctypes.c_void_p), (r"\bncclComm_t\b|\bcudaStream_t\b", ctypes.c_void_p)]
_PASSED_AS += [(r"\bsize_t\b", ctypes.c_size_t), (r"\bncclUniqueId\b", "struct")]
_PASSED_AS += [(r"\bint\b|\bnccl(DataType|RedOp|Result)_t\b", ctypes.c_int)]


def declared(header, function):
    inner = re.search(rf"^\s*(?:ncclResult_t|const char\*)\s+{function}\(([^)]*)\);", header, re.M)[1]
    return [next(kind for words, kind in _PASSED_AS if re.search(words, one)) for one in inner.split(",")]


def test_the_signatures_are_those_of_nccl_h():
    places = [path for entry in sys.path for path in Path(entry).glob("nvidia/nccl/include/nccl.h")]
    if not places:
        pytest.skip("no nccl.h on this machine")
    header = places[0].read_text()
    from bench_lib.nccl import library

    for function, kinds in library.SIGNATURES.items():
        ours = ["struct" if issubclass(kind, ctypes.Structure) else kind for kind in kinds]
        assert declared(header, function) == ours, function
    numbers = {
        name: int(n) for name, n in re.findall(r"(ncclFloat32|ncclBfloat16|ncclSum)\s*=\s*(\d+)", header)
    }
    assert numbers == {"ncclFloat32": 7, "ncclBfloat16": 9, "ncclSum": 0}
    assert int(re.search(r"NCCL_UNIQUE_ID_BYTES (\d+)", header)[1]) == library.UNIQUE_ID_NBYTES


def test_a_library_says_its_version_and_its_wheels(fake_cuda_built, tmp_path):
    path = fake_nccl.build(tmp_path, "2.21.5")
    (tmp_path / "nvidia_nccl_cu11-2.21.6.dist-info").mkdir()
    assert Nccl(path).version == "2.21.5"
    facts = versions(path)
    assert facts["nccl.version"] == "2.21.5"
    assert facts["nccl.pip"] == "2.21.6"
    assert doubts(facts) == ["pip has NCCL 2.21.6, and 2.21.5 is loaded"]
    assert doubts({**facts, "nccl.pip": "2.21.5"}) == []


def test_a_file_that_is_no_library_is_one_sentence(tmp_path):
    (tmp_path / "libnccl.so.2").write_text("no library")
    with pytest.raises(Unavailable, match="cannot be loaded"):
        Nccl(tmp_path / "libnccl.so.2")


@pytest.mark.parametrize(("number", "text"), [(22105, "2.21.5"), (23203, "2.32.3"), (2804, "2.8.4")])
def test_versions_as_nccl_codes_them(number, text):
    assert nccl_version_text(number) == text


# --- its log


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        (
            "n:1:2 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}",
            Choice(1048576, "ring", "ll128", 16),
        ),
        (
            "n:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..0}",
            Choice(8, "nvls_tree", "simple", 1),
        ),
        ("n:1:2 [0] NCCL INFO AllReduce: 64 Bytes -> Algo 1 proto 0 time 9.24", Choice(64, "ring", "ll")),
        ("n:1:2 [0] NCCL INFO 64 Bytes -> Algo 4 proto 2 time 9.24", Choice(64, "nvls", "simple")),
        ("n:1:2 [0] NCCL INFO 64 Bytes -> Algo 9 proto 7 time 9.24", Choice(64, "9", "7")),
        (
            "n:1:2 [0] NCCL INFO AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 2 n",
            Choice(64, "symmetric AllReduce_AGxLL_R", "simple", 2),
        ),
    ],
)
def test_what_the_log_says_of_a_collective(line, choice):
    text = f"n:1:2 [0] NCCL INFO Bootstrap: Using eth0\n{line}\nn:1:2 [0] NCCL INFO comm 0x1 done"
    assert list(choices(text)) == [choice]


def test_channels_that_the_log_does_not_tell_are_no_fact():
    assert Choice(64, "ring", "ll").facts() == {"nccl.algorithm": "ring", "nccl.protocol": "ll"}


# --- where it lies


def test_libraries_by_path_have_names(tmp_path):
    path = tmp_path / "libnccl.so.2"
    path.touch()
    assert found.named([f"2.21.5+cu11={path}"]) == {"2.21.5+cu11": path}
    for given, words in [
        (str(path), "is not NAME=PATH"),
        (f"a b={path}", "is not NAME=PATH"),
        (f"mine={path}.3", "there is no file"),
    ]:
        with pytest.raises(UsageError, match=words):
            found.named([given])
    other = tmp_path / "other"
    other.touch()
    with pytest.raises(UsageError, match="two libraries the name mine"):
        found.named([f"mine={path}", f"mine={other}"])


def test_a_wrong_library_by_path_is_told_before_anything_is_collected(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--nccl",
        "libnccl.so.2",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.strip().startswith("ERROR: --nccl 'libnccl.so.2' is not NAME=PATH")
    assert "Traceback" not in done.stdout + done.stderr


def test_a_version_comes_from_a_folder_of_wheels(fake_cuda_built, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    entry = stacks.stack("nccl-2.21.5-cu11")
    assert found.is_component(entry)
    assert "2.21.5+cu11" not in found.at_hand(None)
    with pytest.raises(Unavailable, match=r"cuda-gains stacks create nccl-2\.21\.5-cu11"):
        found.of_stack(entry)
    fake_nccl.write_wheel(tmp_path / "site", tmp_path / "wheels", "2.21.5", 11)
    assert list(found.at_hand(tmp_path / "wheels")) == ["2.21.5+cu11"]
    path = found.of_stack(entry, tmp_path / "wheels")
    assert Nccl(path).version == "2.21.5"
    assert list(found.at_hand(None)) == ["2.21.5+cu11"]  # now in the cache
    with pytest.raises(NotApplicable, match="a CUDA runtime alone"):
        found.of_stack(StackEntry("cudart-12.4", "cudart"))


# --- the numbers


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 300])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("op", OPS)
def test_what_is_received_is_the_collective_of_what_is_sent(op, dtype, ranks):
    asked = Collective(op, 1200 * 4, dtype, ranks)

    def numbers(of):
        return np.concatenate([pattern.decoded(piece) for _, piece in of.pieces()]).astype(np.float64)

    parts = [numbers(pattern.sent(asked, rank)) for rank in range(ranks)]
    total = np.sum(parts, axis=0)
    assert total.max() <= (256 if op == "all_reduce" else np.inf)  # bf16 holds every whole number up to it
    for rank in {0, ranks - 1}:
        share = slice(rank * asked.count, (rank + 1) * asked.count)
        wanted = {
            "all_reduce": total,
            "reduce_scatter": total[share],
            "broadcast": parts[0],
            "all_gather": np.concatenate(parts),
        }[op]
        assert np.array_equal(numbers(pattern.received(asked, rank)), wanted)


def test_pieces_are_the_whole_whatever_its_length():
    asked = Collective("all_reduce", 3 << 22, "fp32", 2)
    pieces = list(pattern.sent(asked, 1).pieces())
    assert [offset for offset, _ in pieces] == [0, 1 << 20, 2 << 20]
    whole = np.concatenate([piece for _, piece in pieces])
    assert len(whole) == asked.elements
    tile = pattern.sent(asked, 1).tile
    assert np.array_equal(whole, np.resize(tile, asked.elements))


def test_one_wrong_bit_is_a_wrong_result():
    wanted = pattern.encoded(np.arange(8, dtype=np.float32), "bf16")
    pattern.check(wanted, wanted.copy(), "here")
    spoilt = wanted.copy()
    spoilt[5] ^= 1
    with pytest.raises(WrongResult, match=r"^here: element 105 is 5\.03125, expected 5$"):
        pattern.check(spoilt, wanted, "here", 100)


def test_sizes_and_calls():
    assert sizes(8, 64) == [8, 16, 32, 64]
    assert len(sizes(8, 1 << 30)) == 28
    assert [calls(n) for n in (8, 1 << 16, 1 << 20, 1 << 24, 1 << 27, 1 << 30)] == [50, 50, 20, 10, 4, 2]
    shared = Collective("all_gather", 8, "bf16", 3)
    assert (shared.count, shared.elements, shared.actual_nbytes) == (1, 3, 6)
    assert Collective("all_reduce", 8, "bf16", 3).elements == 4


def test_after_three_faults_in_a_row_nothing_is_tried_any_more():
    faults, tried = Faults(), []

    def one(error):
        with faults.counted():
            tried.append(error)
            if error is not None:
                raise error

    for error in (Crashed("one\nlog"), Crashed("two"), None, Crashed("a"), Crashed("b"), WrongResult("c")):
        if error is None:
            one(None)
        else:
            with pytest.raises(type(error), match=str(error).splitlines()[0]):
                one(error)
    with pytest.raises(Crashed, match="d"):
        one(Crashed("d\nits log"))
    n = len(tried)
    with pytest.raises(Crashed, match=r"^d \(before; not tried again\)$"):
        one(None)
    assert len(tried) == n


def test_what_keeps_ranks_from_a_collective_is_looked_for_once():
    faults = Faults()
    for _ in range(2):
        with pytest.raises(Unavailable, match="no GPU"), faults.counted():
            raise Unavailable("no GPU")
