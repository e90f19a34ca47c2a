"""What a stack declares against what is loaded."""

from pathlib import Path

import pytest

from bench_lib.identity import promises
from bench_lib.stacking.stacks import HERE, StackEntry, agrees

DECLARED = {"torch": "2.6.0+cu124", "torch.cuda": "12.4", "cudart": "12.4", "cudnn": "9.1.0"}
ENTRY = StackEntry("cu124", "venv", declared=DECLARED)
FACTS = {
    "torch.version": "2.6.0+cu124",
    "torch.cuda": "12.4",
    "cudart.version": "12.4",
    "cudnn.version": "9.1.0",
    "cudnn.path": "/made/libcudnn.so.9",
    "nccl.version": "2.21.5",
}


def test_what_is_declared_is_what_is_there() -> None:
    assert promises.broken(ENTRY, FACTS) == ""
    assert promises.broken(ENTRY, {}) == ""  # nothing is loaded yet
    assert promises.broken(HERE, FACTS) == ""


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "cudnn.version",
            "9.5.1",
            "declares cudnn 9.1.0, but 9.5.1 is loaded from /made/libcudnn.so.9; corr",
        ),
        ("torch.cuda", "12.6", "declares torch.cuda 12.4, but 12.6 is loaded; correct its entry"),
        ("torch.version", "2.6.0", "declares torch 2.6.0+cu124, but 2.6.0 is loaded"),
        ("cudart.version", "12.4 + 13.0", "declares cudart 12.4, but 12.4 + 13.0 is loaded"),  # two of them
    ],
)
def test_another_version_is_named_with_both(key: str, value: str, said: str) -> None:
    assert f"stack cu124 {said}" in promises.broken(ENTRY, {**FACTS, key: value})


@pytest.mark.parametrize(
    ("declared", "seen", "same"),
    [
        ("12.4", "12.4", True),
        ("12.4", "12.4.127", True),
        ("12.4", "12.40", False),
        ("2.6.0", "2.6.0+cu118", True),
        ("2.6.0+cu118", "2.6.0+cu124", False),
        ("9.1.0", "9.1", False),
    ],
)
def test_a_version_may_be_declared_in_part(declared: str, seen: str, same: bool) -> None:
    assert agrees(declared, seen) is same


def test_what_is_declared_and_not_there_is_named(tmp_path: Path) -> None:
    native = StackEntry("packed-11.8", "path", declared={"cudart": "11.8"}, folder=tmp_path)
    said = f"stack packed-11.8 declares cudart 11.8, but none was found in {tmp_path}; correct its entry, or "
    assert promises.absent(native, {}) == f"{said}unpack the stack there again"
    assert promises.absent(native, {"cudart.path": "/x"}) == ""  # there, but it cannot tell its version
    assert promises.absent(ENTRY, FACTS) == promises.absent(HERE, {}) == ""


def test_a_swap_is_judged_with_its_base(tmp_path: Path) -> None:
    base = StackEntry("packed", "path", declared={"cudart": "12.4", "nccl": "2.21.5"}, folder=tmp_path)
    swap = StackEntry("swapped", "swap", declared={"nccl": "2.22.3"}, base=base, library="nccl")
    facts = {"nccl.version": "2.22.3"}
    said = f"stack swapped declares cudart 12.4, but none was found in {tmp_path}"
    assert promises.absent(swap, facts).startswith(said)
    assert "nccl" in promises.absent(swap, {"cudart.version": "12.4"})
    library = tmp_path / "nvidia/cuda_runtime/lib/libcudart.so.12"
    library.parent.mkdir(parents=True)
    library.touch()
    assert promises.absent(swap, facts) == ""
