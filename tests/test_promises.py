"""What a stack declares against what is loaded."""

import pytest

from bench_lib import promises
from bench_lib.stacks import HERE, StackEntry, agrees

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
