"""What README.md and docs/findings.md say was found is what the shipped campaigns say."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench_lib.claims import judged, pages
from bench_lib.cli import app
from bench_lib.comparing import compare, implementations, sides
from bench_lib.comparing.changes import MOVED, Change
from bench_lib.drawing.family_data import medians, of_family
from bench_lib.pages import page, report
from bench_lib.pages.report import Subject
from bench_lib.sections import answer

ROOT = Path(__file__).parents[1]
SHORT = (ROOT / "README.md").read_text()
LONG = (ROOT / "docs/findings.md").read_text()
README = SHORT + LONG
RESULTS = ROOT / "results"
LADDER = "h200-cudart-ladder"
ROUNDS = "h200-cudart-rounds"
CONVOLUTIONS = "h200-convolutions"
MEMORY_COMPILE = "h200-memory-compile"
TOOLKITS = "h200-118-vs-124"
PYTORCH = "h200-cu124-vs-cu130"
PYTORCH_COMPILE = "h200-cu124-vs-cu130-compile"
OTHERS = "h200-other-systems"
NUMBER = r"[+-]?[\d.]+(?:x| %)? \[[^]]+\]"  # a value with its interval
RUNTIMES = ["11.7", "12.1", "12.4", "12.6", "12.8", "12.9", "13.0", "13.5"]


def row_text(row) -> str:
    return f"{row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}]"


def test_the_short_form_says_nothing_that_the_long_one_does_not():
    """The tests of this file hold the long form to the data."""
    found = re.search(r"## What was found\n(.*?)\*\*Published claims", SHORT, re.DOTALL)[1]
    intervals = re.findall(r"[\d.]+ \[[^]]+\]", found)
    assert len(intervals) > 10
    assert [one for one in intervals if one not in LONG] == []
    speeds = re.search(r"move ([\d.]+) GB/s, prefetch ([\d.]+), a pinned copy ([\d.]+)\.", found).groups()
    assert "{} GB/s by page faults, {} by prefetch, {} by a pinned copy".format(*speeds) in LONG


@pytest.fixture(scope="module")
def ladder():
    return sides.whole_stack(None, LADDER, RESULTS)


def by_burst(ladder, runtime):
    return {row.params["burst"]: row for row in compare.contrast(ladder, "runtime", "11.8", runtime).cases}


@pytest.mark.parametrize(
    ("line", "runtime", "burst", "change"),
    [
        ("single launches", "12.4", 1, Change.SAME),
        ("bursts of 100", "12.4", 100, Change.SAME),
        ("the null: 11.8 against a second copy of itself, bursts of 100", "11.8#2", 100, Change.SAME),
        ("the control: no runtime at all, `cuLaunchKernel`, bursts of 100", "driver", 100, Change.FASTER),
    ],
)
def test_the_table_of_launches(ladder, line, runtime, burst, change):
    row = by_burst(ladder, runtime)[burst]
    assert row.change is change
    assert row.n >= 10
    assert f"| {line} | {row_text(row)} | {change}" in README


def test_all_runtimes_lie_within_one_percent_of_11_8(ladder):
    assert "took within\n1 % of the time of 11.8" in README
    rows = [row for runtime in RUNTIMES for row in by_burst(ladder, runtime).values()]
    assert all(abs(row.ratio - 1) < 0.01 for row in rows)
    same = sum(row.change is Change.SAME for row in rows)
    assert same > len(rows) / 2  # "most"
    assert {row.change for row in rows} == {Change.SAME, Change.UNCLEAR}


def test_what_leans_slower_in_the_rounds_is_said():
    comparison = compare.compare(*sides.pair("cudart-11.8", "cudart-12.4", ROUNDS, RESULTS))
    (row,) = [r for r in comparison.cases if r.case_id == "launch/empty[api=cudart,metric=submit]"]
    assert row.change is Change.UNCLEAR
    assert f"leans slower there (submit {row_text(row)}" in README


def test_what_the_runtime_itself_costs(ladder):
    found = {round(100 * (1 - row.ratio)) for row in by_burst(ladder, "driver").values()}
    low, high = re.search(r"those (\d) to (\d) %", README).groups()
    assert found == {int(low), int(high)}


@pytest.mark.parametrize("candidate", ["cudart-11.8#2", *(f"cudart-{v}" for v in RUNTIMES)])
def test_no_runtime_comes_out_faster_or_slower_in_the_rounds(candidate):
    comparison = compare.compare(*sides.pair("cudart-11.8", candidate, ROUNDS, RESULTS))
    counts = comparison.counts()
    assert counts[Change.FASTER] == counts[Change.SLOWER] == 0
    assert comparison.interleaved
    assert not comparison.canaries_moved
    assert min(row.n for row in comparison.cases) >= 10


@pytest.fixture(scope="module")
def toolkits():
    return compare.compare(*sides.pair("native-11.8", "native-12.4", TOOLKITS, RESULTS))


@pytest.mark.parametrize(
    ("line", "change", "params"),
    [
        (
            "a 3x3 convolution, fp32, 256 channels of 14 x 14",
            Change.FASTER,
            {"shape": "3x3-256-256-14", "precision": "fp32", "benchmark": "off"},
        ),
        (
            "the 7x7 stem, TF32",
            Change.FASTER,
            {"shape": "7x7-3-64-224-s2", "precision": "tf32", "benchmark": "off"},
        ),
        (
            "a 3x3 convolution, TF32, 64 channels of 56 x 56",
            Change.FASTER,
            {"shape": "3x3-64-64-56", "precision": "tf32", "benchmark": "off"},
        ),
        (
            "the same in fp16, channels_last",
            Change.SLOWER,
            {"shape": "3x3-64-64-56", "precision": "fp16", "benchmark": "off"},
        ),
        (
            "256 MiB to the GPU by prefetch",
            Change.SAME,
            {"direction": "to_gpu", "way": "prefetch", "nbytes": 256 << 20},
        ),
        ("a graph of 100 kernels", Change.SAME, {"nodes": 100, "metric": "total"}),
    ],
)
def test_the_table_of_toolkits(toolkits, line, change, params):
    (row,) = [row for row in toolkits.cases if params.items() <= row.params.items()]
    assert (row.change, row.n) == (change, 10)
    assert f"| {line} | {row_text(row)} | {change} |" in README


def test_what_differs_between_the_toolkits(toolkits):
    """The same libcudnn.so in both: what its parts were built for, its cases tell."""
    assert {(one.axis, one.component) for one in toolkits.differences} == {
        ("stack", name) for name in ("cublas", "cublaslt", "cudart", "cudnn", "nvrtc")
    }
    assert "cudnn 9.1.0 (cuda 11.8) -> 9.1.0 (cuda 12.4)" in toolkits.attribution
    assert toolkits.interleaved
    assert not toolkits.canaries_moved
    assert any(note.startswith("the bits of the output differ in 0 of 18 cases") for note in toolkits.notes)
    assert "gave the same bits in 18 of 18 cases" in README
    changed = {row.change for row in toolkits.cases if row.family != "cudnn_selection"}
    assert changed == {Change.SAME, Change.UNCLEAR}
    chosen = [row for row in toolkits.cases if row.params.get("benchmark") == "off"]
    assert not any("implementation changed" in row.reason for row in chosen)
    ran = implementations.ran(sides.pair("native-11.8", "native-12.4", TOOLKITS, RESULTS)[0].data.cases)
    assert all(len(ran[row.case_id]["algorithm"]) == 1 for row in chosen)


@pytest.fixture(scope="module")
def pytorch():
    return compare.compare(*sides.pair("cu124", "here", PYTORCH, RESULTS))


THREE_BY_THREE = {"shape": "3x3-64-64-56", "direction": "forward", "layout": "channels_last"}
BY_PATH = {"op": "conv_by_path", "precision": "fp32"}


@pytest.mark.parametrize(
    ("line", "change", "params"),
    [
        (
            "a 3-D convolution, fp16 autocast",
            Change.FASTER,
            {"shape": "3x3x3-32-64-8x28x28", "precision": "fp16-autocast"},
        ),
        (
            "a 3x3 convolution, fp16 autocast, 64 channels of 56 x 56",
            Change.FASTER,
            THREE_BY_THREE | {"precision": "fp16-autocast"},
        ),
        ("the same in TF32", Change.FASTER, THREE_BY_THREE | {"precision": "tf32"}),
        ("the same in fp32", Change.SLOWER, THREE_BY_THREE | {"precision": "fp32"}),
        ("the same in fp32, NCHW", Change.SLOWER, THREE_BY_THREE | {"precision": "fp32", "layout": "nchw"}),
        (
            "cuDNN alone by path, benchmark off: fft-tiling became implicit-precomp-gemm",
            Change.SLOWER,
            BY_PATH | {"shape": "3x3-64-64-56", "benchmark": "off"},
        ),
        (
            "cuDNN alone by path, benchmark on: fft-tiling in both",
            Change.UNCLEAR,
            BY_PATH | {"shape": "3x3-64-64-56", "benchmark": "on"},
        ),
        (
            "the 7x7 stem, fp32, by path, benchmark off and on alike",
            Change.SLOWER,
            BY_PATH | {"shape": "7x7-3-64-224-s2", "benchmark": "off"},
        ),
        (
            "a training step of ResNet-50, fp32",
            Change.SLOWER,
            {"network": "resnet50", "precision": "fp32"},
        ),
    ],
)
def test_the_table_of_pytorch_builds(pytorch, line, change, params):
    (row,) = [row for row in pytorch.cases if params.items() <= {"op": row.op, **row.params}.items()]
    assert (row.change, row.n) == (change, 7)
    assert f"| {line} | {row_text(row)} | {change} |" in README


def test_why_the_convolution_of_fp32_is_slower(pytorch):
    """Another choice of the heuristic, which benchmark mode mends; the kernel of the stem it does not."""
    three = {
        row.params["benchmark"]: row
        for row in pytorch.cases
        if (BY_PATH | {"shape": "3x3-64-64-56"}).items() <= {"op": row.op, **row.params}.items()
    }
    assert "implementation changed: fft-tiling/fma → implicit-precomp-gemm/fma" in three["off"].reason
    assert "implementation changed" not in three["on"].reason
    ran = [
        set(implementations.ran(side.data.cases)[three["on"].case_id]["algorithm"])
        for side in sides.pair("cu124", "here", PYTORCH, RESULTS)
    ]
    assert ran == [{"fft-tiling/fma"}, {"fft-tiling/fma"}]
    stem = BY_PATH | {"shape": "7x7-3-64-224-s2"}
    for row in pytorch.cases:
        if stem.items() <= {"op": row.op, **row.params}.items():
            assert "kernel regression: slower with benchmark off and on" in row.reason


def test_what_gained_and_what_lost_by_precision(pytorch):
    """Half precision gained in single convolutions alone; of fp32 three lost and one gained."""
    moved = [
        (row.op, row.params.get("precision", ""), row.change) for row in pytorch.cases if row.change in MOVED
    ]
    half = [one for one in moved if one[1].startswith(("fp16", "bf16"))]
    assert {(op in ("conv", "conv_by_path"), change) for op, _, change in half} == {(True, Change.FASTER)}
    single = Counter(change for op, precision, change in moved if (op, precision) == ("conv", "fp32"))
    assert single == {Change.SLOWER: 3, Change.FASTER: 1}
    assert [one for one in moved if one[0] == "train_step"] == [("train_step", "fp32", Change.SLOWER)]


def test_what_differs_between_the_builds_of_pytorch(pytorch):
    assert pytorch.attribution.startswith("confounded: ")
    changed = {one.component for one in pytorch.differences if one.axis == "stack"}
    assert {"torch", "cudnn", "cublas", "cudart", "nvrtc", "triton"} <= changed
    assert pytorch.interleaved
    assert not pytorch.canaries_moved
    (copy,) = [row for row in pytorch.canaries if row.op == "device_copy"]
    assert f"| canary: copying on the device | {row_text(copy)} | {copy.change} |" in README
    assert {row.change for row in pytorch.cases if row.family == "launch"} <= {
        Change.SAME,
        Change.UNCLEAR,
        Change.NOT_COMPARABLE,
    }


def test_what_the_builds_of_pytorch_do_to_compiling():
    baseline, candidate = sides.pair("cu124", "here", PYTORCH_COMPILE, RESULTS)
    steps = {
        row.params["execution"]: row
        for row in compare.compare(baseline, candidate).cases
        if row.metric == "step" and row.params["mode"] == "train"
    }
    assert (steps["eager"].change, steps["compiled"].change) == (Change.FASTER, Change.UNCLEAR)
    assert f"takes {row_text(steps['eager'])} of the time" in README
    assert f"cannot be told apart ({row_text(steps['compiled'])}, three rounds)" in README

    def first(side, metric):
        samples = side.data.samples.to_pandas()
        ours = samples[samples["case_id"].str.contains(f"compiled.*metric={metric},mode=train")]
        return sorted(ours.groupby("run_id", observed=True)["seconds"].median())

    (new,), (old, older) = first(candidate, "first_cold"), first(baseline, "first_cold")
    assert f"took {new:.0f} s with empty\ncaches against {old:.0f} and {older:.0f} s" in README
    (new,), (old,) = first(candidate, "first_warm"), first(baseline, "first_warm")
    assert f"{new:.1f} s with filled ones against {old:.1f}" in README


def test_the_short_answer_on_compiling_says_what_is_open():
    gains, losses, canary = answer.short(
        compare.compare(*sides.pair("cu124", "here", PYTORCH_COMPILE, RESULTS))
    )
    assert gains.startswith("2 of 16 cases are faster")
    assert losses == "No case is shown to be slower by more than its margin; 14 of 16 are unclear."
    assert canary.startswith("No canary was measured on both sides")


@pytest.mark.parametrize(
    ("campaign", "file", "words"),
    [
        (TOOLKITS, "compare", ["native-11.8", "native-12.4"]),
        (TOOLKITS, "calibrate", []),
        (PYTORCH, "compare", ["cu124", "here"]),
        (PYTORCH, "calibrate", []),
        (PYTORCH_COMPILE, "compare", ["cu124", "here"]),
    ],
)
def test_what_ships_beside_a_campaign_is_what_the_command_says(campaign, file, words):
    command = [file, *words, "--campaign", campaign, "--results", str(RESULTS), "--format", "md"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert done.stdout == (RESULTS / campaign / f"{file}.md").read_text()


@pytest.fixture(scope="module")
def convolutions():
    return sides.whole_stack(None, CONVOLUTIONS, RESULTS)


def speed_up_text(row) -> str:
    return f"{1 / row.ratio:.2f} [{1 / row.high:.2f}, {1 / row.low:.2f}]"


def precision(convolutions, baseline, candidate):
    return compare.contrast(convolutions, "precision", baseline, candidate)


@pytest.mark.parametrize(
    ("line", "baseline", "candidate"),
    [
        ("fp32 to bf16 autocast", "fp32", "bf16-autocast"),
        ("fp32 to TF32, which torch uses for convolutions unless told otherwise", "fp32", "tf32"),
        ("TF32 to bf16 autocast", "tf32", "bf16-autocast"),
    ],
)
def test_the_table_of_training_steps(convolutions, line, baseline, candidate):
    rows = precision(convolutions, baseline, candidate).cases
    (row,) = [row for row in rows if row.params.get("network") == "resnet50"]
    assert row.change is Change.FASTER
    assert row.n >= 5
    assert f"| {line} | {speed_up_text(row)} |" in README


def test_a_block_alone_loses(convolutions):
    rows = precision(convolutions, "tf32", "bf16-autocast").cases
    (row,) = [row for row in rows if row.params.get("network") == "bottleneck"]
    assert row.change is Change.SLOWER
    assert f"it loses ({speed_up_text(row)})" in README


def test_single_convolutions(convolutions):
    rows = precision(convolutions, "fp32", "bf16-autocast").cases
    gains = {row.params["shape"]: 1 / row.ratio for row in rows if row.op == "conv" and row.n >= 5}
    assert min(gains, key=gains.get) == "7x7-3-64-224-s2"
    assert f"from {min(gains.values()):.2f} times (the stem) to {max(gains.values()):.2f}\ntimes" in README


def test_a_small_network_trains_alike(convolutions):
    rows = precision(convolutions, "fp32", "bf16-autocast").quantities
    loss, accuracy = (
        next(row for row in rows if row.op == "small_cnn" and row.unit == unit)
        for unit in ("final_loss", "accuracy")
    )
    assert f"{loss.baseline:.3f} against {loss.candidate:.3f}" in README
    (step,) = [row for row in precision(convolutions, "fp32", "bf16-autocast").cases if row.op == "small_cnn"]
    assert step.change is Change.SLOWER
    assert f"take {step.ratio:.2f} [{step.low:.2f}, {step.high:.2f}] times as\nlong under autocast" in README
    assert f"{100 * accuracy.baseline:.1f} % against {100 * accuracy.candidate:.1f} %" in README


def test_tuning_gains_and_loses(convolutions):
    rows = compare.contrast(convolutions, "benchmark", "off", "on").cases
    steady = [row for row in rows if row.metric == "time" and row.low is not None]
    best, worst = min(steady, key=lambda row: row.ratio), max(steady, key=lambda row: row.low)
    assert (best.change, worst.change) == (Change.FASTER, Change.SLOWER)
    assert (best.op, best.params["precision"]) == ("conv_by_path", "fp32")
    assert worst.params["precision"] == "fp16"
    assert f"{speed_up_text(best)} times on one fp32" in README
    assert f"lost on an fp16 one:\n{speed_up_text(worst)}" in README
    changes = Counter(row.change for row in steady)
    assert f"of {len(steady)} convolutions with runs enough" in SHORT
    told = (changes[one] for one in (Change.FASTER, Change.SLOWER, Change.SAME, Change.UNCLEAR))
    assert "{} gained, {} lost, {} took the same time and {} are unclear".format(*told) in SHORT


def test_what_tuning_costs(convolutions):
    ok = convolutions.data.cases.query("op == 'tuning' and status == 'ok'")
    samples = convolutions.data.samples.to_pandas()
    seconds = samples[samples["case_id"].isin(ok["case_id"])].groupby(["run_id", "case_id"], observed=True)
    medians = seconds["seconds"].median()
    assert f"took {1e3 * medians.min():.1f} ms to {medians.max():.1f} s" in README


@pytest.fixture(scope="module")
def memory_compile():
    return sides.whole_stack(None, MEMORY_COMPILE, RESULTS)


def compiled_step(side, **params):
    rows = compare.contrast(side, "execution", "eager", "compiled").cases
    (row,) = [r for r in rows if r.metric == "step" and params.items() <= r.params.items()]
    return row


def of_one_machine(side, gpu_uuid):
    runs = side.data.runs[side.data.runs["gpu_uuid"] == gpu_uuid]
    cases = side.data.cases[side.data.cases["run_id"].isin(runs["run_id"])]
    return replace(side, data=replace(side.data, runs=runs, cases=cases))


@pytest.mark.parametrize(
    ("line", "mode"),
    [("training, ten processes on two machines", "train"), ("inference, ten processes", "infer")],
)
def test_the_table_of_compiled_steps(memory_compile, line, mode):
    row = compiled_step(memory_compile, mode=mode, batch=128)
    assert (row.change, row.n) == (Change.FASTER, 10)
    assert f"| {line} | {speed_up_text(row)} |" in README


def test_compiling_gains_less_where_the_host_is_the_limit(memory_compile):
    machines = memory_compile.data.runs["gpu_uuid"].unique()
    rows = [compiled_step(of_one_machine(memory_compile, one), mode="train", batch=128) for one in machines]
    slower, faster = sorted(rows, key=lambda row: 1 / row.ratio)
    assert slower.n == faster.n == 5
    assert f"| the five on the machine with the slower CPU | {speed_up_text(slower)} |" in README
    assert f"| the five on the other | {speed_up_text(faster)} |" in README
    small = compiled_step(memory_compile, batch=32)
    assert f"gained nothing ({1 / small.ratio:.2f}, one process)" in README
    shares = values_of(memory_compile, "compile_resnet50", "host_share", batch=32)
    assert min(shares.values()) > 0.95


def test_the_report_on_compiling_opens_with_whole_steps_and_with_machines_that_differ(memory_compile):
    comparison = compare.contrast(memory_compile, "execution", "eager", "compiled")
    subject = Subject(comparison, memory_compile.data)
    assert subject.title == "torch.compile against eager, one H200"
    blocks = report.first_screen(subject).blocks
    said, trust = [page.letters(one) for one in blocks[3].items], page.letters(blocks[4])
    step = "resnet50 step (batch 128, channels_last, {}, bf16 autocast) with"
    assert said[1].startswith(f"Of these the biggest gain is {step.format('infer')}")
    assert step.format("train") in said[1]
    assert "no case is shown to be slower" in said[1]
    assert "parts of a step" in report.at_a_glance(comparison).blocks[0].items[0]
    first, second = re.findall(r"(\d+) % less time on (?:one|another) \(5 runs\)", trust)
    on_machine = (
        of_one_machine(memory_compile, one) for one in memory_compile.data.runs["gpu_uuid"].unique()
    )
    ratios = sorted(compiled_step(one, mode="train", batch=128).ratio for one in on_machine)
    assert [first, second] == [f"{100 * (1 - ratio):.0f}" for ratio in ratios]
    page_text = " ".join((ROOT / "docs/statistics.md").read_text().split())
    assert f"takes {first} % off a training step on one machine and {second} % on the other" in page_text
    assert "faster CPU would show less time" in trust


def values_of(side, family, unit="seconds", **params):
    """The median of every case of these parameters, by the case's id."""
    found = {}
    for one in medians(of_family(side.data, family)):
        if one.unit == unit and params.items() <= one.params.items():
            found[tuple(sorted((name, str(value)) for name, value in one.params.items()))] = one.value
    return found


def test_what_the_first_compiled_step_costs(memory_compile):
    train = {"mode": "train", "execution": "compiled"}
    (cold,), (warm,) = (
        values_of(memory_compile, "compile_resnet50", metric=metric, **train).values()
        for metric in ("first_cold", "first_warm")
    )
    steps = values_of(memory_compile, "compile_resnet50", "payback_steps", **train)
    most, least = max(steps.values()), min(steps.values())
    assert f"took {cold:.0f} s with empty caches and {warm:.1f} s with filled ones" in README
    assert f"which {most:.0f} and {least:.0f} steps pay back" in README


def test_what_moving_managed_memory_costs(memory_compile):
    def speed(direction, way):
        plain = {"order": "sequential", "advise": "none", "access": "write", "nbytes": 256 << 20}
        (seconds,) = values_of(
            memory_compile, "unified_memory", direction=direction, way=way, **plain
        ).values()
        return f"{(256 << 20) / seconds / 1e9:.1f}"

    there = [speed("to_gpu", way) for way in ("faults", "prefetch", "pinned")]
    assert "{} GB/s by page faults, {} by prefetch, {} by a pinned copy".format(*there) in README
    assert 4.5 < float(there[2]) / float(there[0]) < 6  # "five times"
    back = [speed("to_cpu", way) for way in ("faults", "prefetch", "pinned")]
    assert (
        "by CPU touches {}, and a\nprefetch to the CPU ({}) is far from a pinned copy ({})".format(*back)
        in README
    )


def test_what_exchanging_weights_costs(memory_compile):
    def milliseconds(way):
        (seconds,) = values_of(memory_compile, "unified_memory", way=way, metric="exchange").values()
        return f"{1e3 * seconds:.0f}"

    ways = [milliseconds(way) for way in ("faults", "prefetch", "pinned")]
    assert "costs {} ms by faults, {} by prefetch and {} by pinned copies".format(*ways) in README
    (fault,) = values_of(memory_compile, "unified_memory", metric="fault", order="sequential").values()
    assert f"fault costs {1e6 * fault:.0f} µs" in README


@pytest.fixture(scope="module")
def others():
    return sides.whole_stack(None, OTHERS, RESULTS)


@pytest.mark.parametrize(
    ("line", "change", "contrast", "params"),
    [
        (
            "copying tiles of 16 KiB by TMA instead of cp.async",
            Change.SAME,
            ("loads", "cp_async", "tma"),
            {"op": "copy_ptx", "tile": 16384},
        ),
        (
            "a product of 4096 x 4096 by Triton, tiles of 64 x 64, TMA instead of cp.async",
            Change.FASTER,
            ("loads", "cp_async", "tma"),
            {"op": "gemm", "m": 4096, "tile": "64x64x64"},
        ),
        (
            "copying tiles of 128 x 128 by Triton, TMA instead of plain loads",
            Change.SLOWER,
            ("loads", "plain", "tma"),
            {"op": "copy", "tile": "128x128"},
        ),
        (
            "attention by cuDNN instead of FlashAttention, forward, bf16",
            Change.FASTER,
            ("backend", "flash", "cudnn"),
            {"op": "attention", "direction": "forward"},
        ),
        (
            "copies on a stream of their own beside products, pinned memory to the GPU",
            Change.FASTER,
            ("streams", "one", "two"),
            {"memory": "pinned", "direction": "to_gpu"},
        ),
        (
            "the same with pageable memory",
            Change.FASTER,
            ("streams", "one", "two"),
            {"memory": "pageable", "direction": "to_gpu"},
        ),
        (
            "a DataLoader with 4 workers instead of none, a batch",
            Change.FASTER,
            ("workers", "0", "4"),
            {"op": "dataloader"},
        ),
        (
            "small kernels of 4 processes under MPS instead of time-sliced, a request",
            Change.FASTER,
            ("sharing", "time_sliced", "mps"),
            {"op": "small_kernels", "clients": 4, "metric": "per_request"},
        ),
        (
            "the same with products of 1024 x 1024",
            Change.FASTER,
            ("sharing", "time_sliced", "mps"),
            {"op": "gemm", "clients": 4, "metric": "per_request"},
        ),
        (
            "expandable segments instead of native, a first block of 1 GiB",
            Change.SLOWER,
            ("backend", "native", "expandable_segments"),
            {"op": "block", "metric": "first", "nbytes": 1 << 30},
        ),
        (
            "torch starts CUDA with eager loading instead of lazy",
            Change.SLOWER,
            ("loading", "lazy", "eager"),
            {"op": "torch", "work": "cuda_init"},
        ),
        (
            "ResNet-50 to ONNX by the older exporter instead of dynamo's",
            Change.FASTER,
            ("exporter", "dynamo", "torchscript"),
            {"op": "export", "network": "resnet50"},
        ),
    ],
)
def test_the_table_of_other_systems(others, line, change, contrast, params):
    rows = compare.contrast(others, *contrast).cases
    (row,) = [row for row in rows if params.items() <= {"op": row.op, **row.params}.items()]
    assert row.change is change
    assert row.n >= 4
    assert f"| {line} | {row_text(row)} | {change} |" in LONG


WORDS = " ".join(LONG.split())


def test_what_loads_through_tma_give(others):
    paces = {"copies": [], "products": []}
    for baseline in ("cp_async", "plain"):
        for row in compare.contrast(others, "loads", baseline, "tma").cases:
            if row.ratio and (baseline == "cp_async" or row.op == "copy"):
                paces["products" if row.op == "gemm" else "copies"].append(1 / row.ratio)
    copies, products = (f"{min(found):.2f} to {max(found):.2f} times" for found in paces.values())
    assert f"ran at {copies} the pace of those without and products at {products};" in WORDS
    plain = [v for k, v in values_of(others, "tma", nbytes=256 << 20).items() if ("loads", "plain") in k]
    assert f"already move {2 * (256 << 20) / min(plain) / 1e12:.1f} of the 4.8 TB/s" in WORDS


def test_what_attention_gives(others):
    (flop,) = set(others.data.cases.query("op == 'attention' and params.str.contains('forward')")["flop"])
    rates = {}
    for backend in ("cudnn", "flash"):
        found = values_of(others, "tma", backend=backend, direction="forward")
        (rates[backend],) = (flop / seconds / 1e12 for seconds in found.values())
    assert "by cuDNN {cudnn:.0f} TFLOP/s forward".format(**rates) in WORDS
    assert "the generation before) {flash:.0f};".format(**rates) in WORDS
    ran = others.data.cases.query("op == 'attention_default'")["facts"]
    assert all("cudnn" in dict(facts)["operators"] for facts in ran)


def test_what_the_allocators_reserve(others):
    def told(backend):
        asked = {"metric": "again", "backend": backend}
        parts = {
            unit: {
                dict(key)["trace"]: value
                for key, value in values_of(others, "allocator", unit, **asked).items()
            }
            for unit in ("peak_reserved_nbytes", "peak_nbytes")
        }
        traces = ("transformer", "diffusion", "adversarial")
        return [f"{parts['peak_reserved_nbytes'][t] / parts['peak_nbytes'][t]:.2f}" for t in traces]

    native, expandable, pool = map(told, ("native", "expandable_segments", "cudaMallocAsync"))
    said = "reserved {} times for a Transformer's training, {} for a diffusion-like mix and {} for an"
    assert said.format(*native) in WORDS
    assert "with `expandable_segments` {}, {} and {};".format(*expandable) in WORDS
    assert "`cudaMallocAsync`, {}, {} and {}.".format(*pool) in WORDS
    again = values_of(others, "allocator", metric="again").items()
    times = [1e6 * seconds for key, seconds in again if "trace" in dict(key)]
    assert f"costs {min(times):.0f} to {max(times):.0f} µs" in WORDS


def test_what_streams_give(others):
    rows = compare.contrast(others, "streams", "one", "two").cases
    paces = {(row.params["memory"], row.params["direction"]): 1 / row.ratio for row in rows}
    (bound,) = {
        f"{value:.2f}"
        for value in values_of(
            others, "stream_overlap", "overlap_bound", memory="pinned", direction="to_gpu"
        ).values()
    }
    pinned, pageable = paces["pinned", "to_gpu"], paces["pageable", "to_gpu"]
    assert f"came to {pinned:.2f} times the pace of one (at most {bound} was possible)" in WORDS
    assert f"pageable memory to {pageable:.2f} times" in WORDS


def test_what_mps_gives(others):
    rows = compare.contrast(others, "sharing", "time_sliced", "mps").cases
    rows = [row for row in rows if row.metric == "per_request"]
    paces = {(row.op, row.params["clients"]): 1 / row.ratio for row in rows}
    assert f"do {paces['small_kernels', 4]:.2f} times as many requests together" in WORDS
    assert f"half the GPU {paces['gemm', 4]:.2f} times" in WORDS
    assert {row.change for row in rows if row.params["clients"] == 1} == {Change.SAME}
    for op in ("small_kernels", "gemm"):
        alone, two = (
            row.baseline for n in (1, 2) for row in rows if (row.op, row.params["clients"]) == (op, n)
        )
        assert alone < two  # time-sliced, a request of all together


def test_what_lazy_loading_saves(others):
    def sums(loading):
        steps = [{"work": work, "loading": loading} for work in ("cuda_init", "matmul", "convolution")]
        found = [
            [next(iter(values_of(others, "module_loading", unit, **step).values())) for step in steps]
            for unit in ("seconds", "taken_nbytes")
        ]
        seconds, nbytes = map(sum, found)
        return f"{seconds:.3g} s and {nbytes / (1 << 20):.0f} MiB"

    assert f"took torch {sums('lazy')} of the GPU, with eager loading {sums('eager')};" in WORDS
    (context,) = {
        f"{nbytes / (1 << 20):.0f}"
        for api in ("driver", "cudart")
        for nbytes in values_of(others, "module_loading", "taken_nbytes", api=api).values()
    }
    assert f"the context itself takes {context} MiB either way" in WORDS


def test_what_exports_to_onnx(others):
    exports = others.data.cases.query("family == 'onnx_export' and op == 'export'")
    assert set(exports["status"]) == {"ok"}
    assert len(exports) == 4 * 5
    assert max(dict(one)["relative_error"] for one in exports["quantities"]) < 5e-7
    assert "the same within 5e-07" in WORDS
    made = {
        exporter: next(
            iter(values_of(others, "onnx_export", "exports_succeeded", exporter=exporter).values())
        )
        for exporter in ("dynamo", "torchscript")
    }
    assert "{dynamo:.0f} came through dynamo's and {torchscript:.0f} through the".format(**made) in WORDS


@pytest.fixture(scope="module")
def judgements():
    return judged.verdicts(RESULTS).claims


@pytest.fixture(scope="module")
def claims(judgements):
    return {one.claim.id: one for one in judgements if any(each.n_cases for each in one.findings)}


def test_the_table_of_claims_is_what_is_judged(claims):
    """Of several findings the least and the most favourable are shown, not one that was picked."""
    table = re.search(r"\| claim \| claimed \| verdict .*?\n\n", README, re.DOTALL)[0]
    rows = {re.search(r"`([^`]+)`", row)[1]: row for row in table.splitlines()[2:] if row}
    assert set(rows) == {name for name, one in claims.items() if one.claim.kind != "fact"}
    for name, row in rows.items():
        _, _, claimed, verdict, shown, _ = (cell.strip() for cell in row.split("|"))
        assert claimed
        assert verdict == pages.verdict_text(claims[name])
        found = [one for one in claims[name].findings if one.shown and one.verdict != "not measured"]
        found.sort(key=lambda one: one.value)
        ends = [re.search(NUMBER, one.shown)[0] for one in (found[0], found[-1])]
        assert re.findall(NUMBER, shown) == (ends if len(found) > 1 else ends[:1])
        campaigns = len({one.campaign for one in found})
        said = f"{len(found)} findings in {campaigns} campaign{'s' * (campaigns != 1)}"
        assert shown.endswith(said) if len(found) > 1 else "findings" not in shown


def test_how_many_claims_were_measured_in_too_few_runs(judgements, claims):
    few = [
        one for one in judgements if one.claim.kind != "fact" and one.findings and one.claim.id not in claims
    ]
    assert {one.verdict for one in few} == {"inconclusive"}
    assert len(few) == 4
    assert "Four more of these claims were measured in too few runs for a verdict" in README


def test_what_the_toolkit_does_to_an_exchange_of_parameters(claims):
    (finding,) = claims["um-param-swap-latency"].findings
    less, most, least = re.match(r"time -([\d.]+) % \[-([\d.]+), \+([\d.]+)\]", finding.shown).groups()
    assert f"took {less} % less [-{least}, {most}]" in README


def test_the_claim_that_the_readme_shows_is_read_and_judged(tmp_path):
    entry = re.search(r"```toml\n(\[\[claim\]\]\n.*?)```", README, re.DOTALL)[1]
    assert len(entry.splitlines()) == 10
    (tmp_path / "mine.toml").write_text(entry)
    (one,) = judged.judged(RESULTS, [ROUNDS], tmp_path / "mine.toml")
    assert one.verdict == "inconclusive"
    assert [each.campaign for each in one.findings] == [ROUNDS]
    assert one.findings[0].n_cases > 5
