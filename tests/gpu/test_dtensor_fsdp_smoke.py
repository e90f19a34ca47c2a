"""The checks over the GPUs of this machine, one rank a GPU over NCCL; and over two gloo ranks beside them."""

import pytest

from bench_lib.smoke import checking

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def world():
    from bench_lib.ranks.world import World

    pytest.importorskip("torch")
    made = World()
    yield made
    made.close()


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_every_check_passes(world, tmp_path, backend, capsys):
    with checking.group(world, backend) as ranks:
        for check in checking.CHECKS:
            found = checking.checked(ranks, check, tmp_path / check)
            assert found.facts[f"check.{check}"].startswith("passed: ")
            with capsys.disabled():
                print(f"\n{backend}, {ranks.size} ranks, {check}: {found.seconds[0] * 1e3:.1f} ms")
