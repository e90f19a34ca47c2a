"""The suite's kernels: that ptxas takes them, what they do on the pretended GPU, one cubin a campaign."""

import hashlib
import re
import subprocess
import sys

import pytest
from assembling import assembled

from bench_lib.device import kernels

NAMES = ("empty", *(f"args_{nbytes}" for nbytes in (8, 64, 512, 4096)), "spin", "hold", "fill")


def test_the_text_holds_the_kernels():
    assert tuple(re.findall(r"\.entry (\w+)\(", kernels.PTX)) == NAMES


@pytest.mark.parametrize("sm", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_ptxas_takes_every_kernel(sm, tmp_path):
    _, names = assembled(kernels.PTX, sm, tmp_path)
    assert names == set(NAMES)


def test_filled_words_are_never_zero_and_differ():
    words = kernels.filled(100_000, seed=7)
    assert words.dtype == "uint32"
    assert (words % 2 == 1).all()
    assert len(set(words.tolist())) > 99_990
    assert (words[:1000] != kernels.filled(1000, seed=8)).mean() > 0.99


def fills_as_promised(n):
    from ctypes import c_uint32, c_uint64

    from bench_lib.device import kernels
    from bench_lib.device.driver import Driver

    context = Driver.load().open()
    fill = context.function(context.load(kernels.cubin(context).data), "fill")
    pointer = context.alloc(4 * n)
    arguments = [c_uint64(pointer), c_uint64(n), c_uint32(7)]
    context.launch(fill, (4, 1, 1), (256, 1, 1), arguments, 0)
    context.synchronize(0)
    return context.download(pointer, 4 * n) == kernels.filled(n, 7).tobytes()


def test_fill_writes_what_filled_says(on_fake_gpu):
    assert on_fake_gpu(fills_as_promised, 5000)


def makes_cubins(folder):
    from pathlib import Path

    from bench_lib.device import kernels
    from bench_lib.device.driver import Driver

    context = Driver.load().open()
    loose = kernels.cubin(context)
    kept = kernels.cubin(context, Path(folder))
    path = kernels.cubin_path(context, Path(folder))
    return [loose.sha256, kept.sha256, kept.sm, kept.sm_number, path.name, kernels.read_cubin(path) == kept]


def test_a_campaign_keeps_its_cubin(on_fake_gpu, tmp_path):
    folder = tmp_path / "results" / "mine"
    loose, kept, sm, number, name, same = on_fake_gpu(makes_cubins, str(folder))
    assert (sm, number, same) == ("sm_90", 90, True)
    assert loose == kept == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert [path.name for path in folder.iterdir()] == [name], "nothing half-made is left"


def test_the_first_cubin_of_a_campaign_stays(on_fake_gpu, tmp_path):
    _, _, _, _, name, _ = on_fake_gpu(makes_cubins, str(tmp_path / "first"))
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / name).write_bytes(b"another driver made this")
    _, kept, *_ = on_fake_gpu(makes_cubins, str(tmp_path / "second"))
    assert kept == hashlib.sha256(b"another driver made this").hexdigest()


RACE = """
import sys
from pathlib import Path
from bench_lib.device import kernels
data = sys.argv[2].encode() * 100_000
sys.stdin.readline()
kernels._keep(data, Path(sys.argv[1]))
print(kernels.read_cubin(Path(sys.argv[1])).sha256)
"""


def test_of_two_makers_one_wins(tmp_path):
    path = tmp_path / "kernels-0-sm_90.cubin"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, path, letter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for letter in "ab"
    ]
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    seen = {racer.communicate(timeout=120)[0].strip() for racer in racers}
    assert seen == {hashlib.sha256(path.read_bytes()).hexdigest()}
    assert path.read_bytes() in (b"a" * 100_000, b"b" * 100_000)
