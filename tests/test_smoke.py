"""Checks over two gloo ranks: each finds what it is there to find. That all pass: test_working.py."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench_lib.ranks.group import Ranks
from bench_lib.ranks.world import World
from bench_lib.smoke import checking, sharded
from bench_lib.smoke.checking import Asked

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def spoiled(member):
    """A rank on which parts of torch do nothing, or are not there; a check that fails is told as text."""
    from torch.distributed import checkpoint, fsdp

    torch_own = {"fully_shard": (fsdp, fsdp.fully_shard), "load": (checkpoint, checkpoint.load)}
    whole = sharded.whole

    def answer(request):
        spoil, asked = request
        module, own = torch_own.get(spoil.removeprefix("no "), (None, None))
        if spoil == "whole":
            sharded.whole = lambda tensor: whole(tensor) + (hasattr(tensor, "full_tensor") and 1e-3)
        elif spoil.startswith("no "):
            delattr(module, spoil.removeprefix("no "))
        else:
            setattr(module, spoil, lambda *_, **__: None)
        try:
            return checking.tried(member, asked.check, Path(asked.folder))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            sharded.whole = whole
            if module is not None:
                setattr(module, spoil.removeprefix("no "), own)

    return answer


@pytest.fixture(scope="module")
def ranks():
    with Ranks(World(), spoiled, size=2, backend="gloo") as made:
        yield made


@pytest.mark.parametrize(
    ("check", "spoil", "said"),
    [
        ("sharding", "whole", "WrongResult: what was cut by rows is off by "),
        ("product", "whole", "WrongResult: the product by rows is off by "),
        ("tensor-parallel", "whole", "WrongResult: the gradient of 0.weight is off by "),
        ("fully-shard", "fully_shard", "WrongResult: after 3 steps the weight "),
        ("mixed-precision", "fully_shard", "WrongResult: the gradient is "),
        ("checkpoint", "load", "WrongResult: the loaded weight 0.weight is off by "),
        ("resharding", "load", "WrongResult: the whole weight 0.weight is off by "),
        ("fully-shard", "no fully_shard", "has no fully_shard; 2.6 or newer has"),
    ],
)
def test_what_does_not_work_is_found(ranks, tmp_path, check, spoil, said):
    for told in ranks.ask((spoil, Asked(check, str(tmp_path / "saved"))), 60):
        assert said in told
        assert ("NotApplicable" in told) is spoil.startswith("no ")


def test_one_rank_alone_shards_nothing():
    with pytest.raises(Exception, match="one rank shards nothing"):
        checking.group(World("1"), "gloo")


def test_child_processes_import_tests_however_pytest_is_started():
    """`pytest` does not put the working folder on the path as `python -m pytest` does."""
    one = f"{__file__}::{test_what_does_not_work_is_found.__name__}"
    command = [
        Path(sys.executable).with_name("pytest"),
        one,
        "-q",
        "-k",
        "resharding",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert "1 passed" in done.stdout, done.stdout[-2000:]
