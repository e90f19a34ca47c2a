"""AllReduce by size: curves are medians, the formula is nccl-tests', and NCCL's choices are marked."""

import re
from collections.abc import Iterable
from pathlib import Path

import other_tools
import pytest
import synthetic
from figures import assert_readable, in_one_line

from bench_lib.allreduce_charts.drawing import allreduce, nccl_versions
from bench_lib.busbw import busbw
from bench_lib.comparing import store
from bench_lib.comparing.store import Data
from bench_lib.drawing import gallery
from bench_lib.errors import UsageError
from bench_lib.importing.writing import import_file
from bench_lib.model import Case, Timing, Work

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = [8 << (3 * i) for i in range(10)]  # 8 B to 1 GiB
RATE = 300e9  # bytes a second, of algbw
FORMS = {
    "torch": {"api": "torch", "backend": "nccl", "launch": "call"},
    "NCCL": {"api": "nccl", "backend": "nccl", "launch": "call"},
    "NCCL, graph replay": {"api": "nccl", "backend": "nccl", "launch": "graph"},
}
LATENCY = {"torch": 25e-6, "NCCL": 10e-6, "NCCL, graph replay": 8e-6}


def case(form: str, nbytes: int, ranks: int = 8, family: str = "allreduce", **more: object):
    params = {**FORMS[form], "place": "in", "dtype": "fp32", "nbytes": nbytes, "metric": "time"}
    world = {"ranks": ranks, "interconnect": "nvlink" if ranks > 1 else "none"}
    choice = ("Tree", "LL") if nbytes <= 64 * KIB else ("Ring", "LL128" if nbytes < 16 * MIB else "Simple")
    facts = dict(zip(("nccl.algorithm", "nccl.protocol"), choice, strict=True)) if ranks > 1 else {}
    return synthetic.SyntheticCase(
        Case(family, "all_reduce", {**params, **world, **more}),
        LATENCY[form] + nbytes / RATE,
        timing=Timing.NATIVE,
        work=Work(nbytes=nbytes),
        facts=facts,
    )


def measured(results: Path, cases: Iterable, stacks=None, rounds: int = 3) -> Data:
    stacks = stacks or {"old": 1.0, "new": 0.9}
    versions = {"old": "2.18.3", "new": "2.21.5"}
    identities = {
        stack: {**synthetic.cudart("12.4"), "nccl.version": versions.get(stack, "2.21.5")} for stack in stacks
    }
    listed = list(cases)
    synthetic.write_campaign(
        results, "ranks", stacks, rounds=rounds, measured=listed, null=False, identities=identities, samples=5
    )
    return store.load(results, ["ranks"])


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Data:
    folder = tmp_path_factory.mktemp("ranks")
    cases = [case(form, nbytes) for form in FORMS for nbytes in SIZES]
    other = [case("NCCL", nbytes, dtype="bf16") for nbytes in SIZES]
    return measured(folder, [*cases, *other])


def curve(figure, panel: int, label: str) -> tuple[list[float], list[float]]:
    (line,) = [line for line in figure.axes[panel].get_lines() if line.get_label() == label]
    return list(line.get_xdata()), list(line.get_ydata())


def test_latency_to_one_mebibyte_and_bandwidth_over_all_sizes(data):
    figure = allreduce(data)

    sizes, microseconds = curve(figure, 0, "old (NCCL 2.18.3): NCCL")
    assert sizes == [nbytes for nbytes in SIZES if nbytes <= MIB]
    assert microseconds == pytest.approx([1e6 * (10e-6 + n / RATE) for n in sizes], rel=0.03)
    sizes, gigabytes = curve(figure, 1, "new (NCCL 2.21.5): torch, nccl")
    assert sizes == SIZES
    expected = [busbw("all_reduce", n, 0.9 * (25e-6 + n / RATE), 8) / 1e9 for n in SIZES]
    assert gigabytes == pytest.approx(expected, rel=0.03)
    assert len(figure.legends[0].get_texts()) == 7  # three ways of two stacks, and the link
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}
    assert figure.axes[0].get_yscale() == "log"
    assert_readable(figure)


def test_what_is_said(data):
    told = in_one_line(allreduce(data))

    assert "fp32, in place, 8 ranks over NVLink" in told
    assert "Medians of 3 runs" in told
    assert "2 curves are not drawn: bf16, in place, 8 ranks over NVLink." in told
    assert "Messages of more than 1 MiB are in the other panel." in told
    assert "bytes / time x 14/8" in told
    assert "NVLink's peak, 450 GB/s in one direction" in told
    assert "Beyond the link's peak" in told  # 300 GB/s of algbw are 525 of busbw
    assert re.search(r"AllReduce by NCCL: \S+ µs with old \(NCCL 2\.18\.3\) and \S+ µs with new \(NCCL", told)
    assert re.search(r"at 8 B; 5\d\d and 5\d\d GB/s of bus bandwidth at 1 GiB", told)


def test_where_nccl_chooses_otherwise_is_marked_once(data):
    figure = allreduce(data)

    small, all_sizes = ([text.get_text().strip() for text in axes.texts] for axes in figure.axes)
    assert small == ["Tree/LL", "Ring/LL128"]
    assert all_sizes == ["Tree/LL", "Ring/LL128", "Ring/Simple"]
    _, *at = [text.get_position()[0] for text in figure.axes[1].texts]
    assert 32 * KIB < at[0] < 256 * KIB
    assert 2 * MIB < at[1] < 16 * MIB


def test_one_rank_has_latency_only(tmp_path):
    figure = allreduce(measured(tmp_path, [case("NCCL", nbytes, ranks=1) for nbytes in SIZES], {"old": 1.0}))

    assert len(figure.axes) == 1
    assert curve(figure, 0, "old (NCCL 2.18.3): NCCL")[0] == SIZES
    assert "there is no bus bandwidth" in in_one_line(figure)
    assert_readable(figure)


def test_imported_results_of_nccl_tests(tmp_path):
    for stack, scale in (("before", 1.0), ("after", 0.9)):
        path = other_tools.nccl_table(tmp_path / f"{stack}.txt", SIZES, scale=scale)
        import_file(path, stack, "cluster", tmp_path)
    figure = allreduce(store.load(tmp_path, ["cluster"]))

    sizes, gigabytes = curve(figure, 1, "before (NCCL 2.21.5): nccl-tests")
    assert sizes == SIZES
    assert gigabytes[-1] == pytest.approx(GIB / other_tools.microseconds(GIB) / 1e3 * 1.75, rel=1e-3)
    told = in_one_line(figure)
    assert "fp32, in place, 8 ranks." in told
    assert "peak" not in told  # what connects the ranks is not in the file
    assert_readable(figure)


def test_versions_of_nccl_in_turns(tmp_path):
    cases = [
        synthetic.replace(one, seconds=one.seconds * factor)
        for form in ("NCCL", "NCCL, graph replay")
        for version, factor in (("2.21.5+cu11", 1.0), ("2.21.5+cu12", 0.95), ("2.28.9", 0.9))
        for nbytes in SIZES
        for one in [case(form, nbytes, ranks=2, family="nccl_ladder", nccl=version)]
    ]
    data = measured(tmp_path, cases, {"here": 1.0})
    figure = nccl_versions(data)

    assert curve(figure, 0, "NCCL 2.28.9: NCCL, graph replay")[1][0] == pytest.approx(7.2, rel=0.03)
    assert "AllReduce by NCCL: " in in_one_line(figure)
    assert [one.name for one in gallery.draw("nccl-versions", data)] == ["nccl-versions"]
    assert_readable(figure)


def test_without_data_the_families_are_named(tmp_path):
    data = measured(tmp_path, synthetic.cases(1))

    with pytest.raises(UsageError, match="measure the family allreduce, or import"):
        allreduce(data)
    with pytest.raises(UsageError, match="nccl_ladder"):
        nccl_versions(data)
