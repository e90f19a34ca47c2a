"""Results of other tools: what is read, that a file counts once, and what a damaged one says."""

import functools
import json
import random
import struct
import sys
from pathlib import Path

import other_tools as files
import pyarrow.parquet as pq
import pytest
from synthetic import (
    Machine,
    SyntheticCase,
    identity,
    measurement,
    run_info,
    write_campaign,
    write_run,
)
from typer.testing import CliRunner

from bench_lib.busbw import algbw, busbw, factor
from bench_lib.campaigns.merge import merge
from bench_lib.cli import app, main
from bench_lib.comparing import sides, store
from bench_lib.comparing.changes import Change
from bench_lib.comparing.compare import compare
from bench_lib.errors import CudaGainsError, DataError, UsageError
from bench_lib.importing import formats
from bench_lib.importing.found import Source
from bench_lib.importing.writing import import_file
from bench_lib.journaling import held
from bench_lib.layout import CampaignFolder
from bench_lib.model import Case, Status

pytestmark = pytest.mark.filterwarnings("error")


def read(path):
    return formats.read(Source.read(path))[1]


def rows(results, table, campaign="imported"):
    return [
        row
        for path in sorted((results / campaign / table).glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


def test_a_table_of_nccl_tests(tmp_path):
    done = import_file(files.nccl_table(tmp_path / "a.txt", wrong=3), "old", "imported", tmp_path / "r")

    assert (done.format, done.runs, done.cases, done.bad) == ("nccl-tests table", 1, 6, 2)
    (run,) = rows(tmp_path / "r", "runs")
    assert (run["stack"], run["arm"], run["device"], run["complete"]) == ("old", "old", "cuda", True)
    assert (run["gpu_name"], run["host"]) == (files.GPU, "node-01")
    assert dict(run["stack_identity"]) == {"nccl.version": "2.21.5", "nccl.cuda": "12.4"}
    assert run["policy"] == "iters=20,warmup=5,agg=1,graph=0,blocking=0,ranks=average"
    cases = rows(tmp_path / "r", "cases")
    assert {one["timing"] for one in cases} == {"nccl-tests"}
    assert {one["world_size"] for one in cases} == {8}
    assert cases[0]["case_id"] == (
        "nccl-tests/all_reduce[dtype=fp32,metric=time,nbytes=8,place=out,ranks=8,redop=sum]"
    )
    assert (cases[0]["calls"], cases[0]["nbytes"], cases[0]["margin"]) == (20, 8, 0.05)
    bad = [one for one in cases if one["status"] != "ok"]
    assert {(one["status"], one["nbytes"], one["reason"]) for one in bad} == {
        ("wrong-result", 1 << 28, "nccl-tests counted 3 wrong elements")
    }
    samples = rows(tmp_path / "r", "samples")
    assert len(samples) == 4
    assert samples[0]["seconds"] == pytest.approx(20e-6)


def test_json_and_table_of_one_run_give_the_same_cases(tmp_path):
    (table,) = read(files.nccl_table(tmp_path / "a.txt"))
    (document,) = read(files.write(tmp_path / "a.json", files.nccl_document()))

    assert [(c.op, c.params, c.timing, c.calls, c.world_size) for c in document.cases] == [
        (c.op, c.params, c.timing, c.calls, c.world_size) for c in table.cases
    ]
    assert document.policy == table.policy
    for one, other in zip(document.cases, table.cases, strict=True):
        assert one.seconds == pytest.approx(other.seconds, rel=1e-3)
    assert document.stack == {"nccl.version": "2.21.5"}
    assert document.settings == {"env.NCCL_ALGO": "Ring"}  # and nothing else of the environment
    assert document.ended_at - document.started_at == 9


def test_iterations_one_by_one_are_samples_of_a_case_of_their_own(tmp_path):
    document = files.nccl_document(sizes=[1 << 20])
    document["results"][0]["out_of_place_per_iter"] = {
        "times_us": [24.0, 26.0],
        "per_process_max_times_us": [[24.0, 26.0], [25.0, 25.0]],
    }
    (run,) = read(files.write(tmp_path / "a.json", document))

    (one,) = [case for case in run.cases if case.params["metric"] == "iteration"]
    assert one.seconds == pytest.approx((25e-6, 26e-6))  # the slowest process
    assert one.timing == "nccl-tests events"


def test_an_mpi_run_has_an_entry_a_process_and_group(tmp_path):
    document = files.nccl_document(sizes=[1 << 28], ranks=4)
    entry = document["config"]["devices"][0]
    document["config"] |= {"ngpus": 2, "devices": [{**entry, "rank": i, "group": i // 2} for i in range(4)]}

    assert read(files.write(tmp_path / "a.json", document))[0].cases[0].world_size == 4


def test_a_log_of_two_runs_is_two_runs_and_mpirun_may_tag_its_lines(tmp_path):
    one = files.nccl_table(tmp_path / "one.txt").read_text()
    two = "".join(f"[1,0]<stdout>:{line}\n" for line in one.replace("-g 8", "-g 8 -a 3").splitlines())
    log = tmp_path / "both.log"
    log.write_text(one + "node-01:123:456 [0] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7\n" + two)

    first, second = read(log)
    assert [len(run.cases) for run in (first, second)] == [6, 6]
    assert first.policy.endswith("ranks=average")
    assert second.policy.endswith("ranks=max")


def test_cycles_of_one_run_are_samples_of_one_case(tmp_path):
    path = files.nccl_table(tmp_path / "a.txt", sizes=[8, 16])
    path.write_text(path.read_text().replace("# Out of", f"{files.row(8, 8, 1.5)}\n# Out of"))

    assert read(path)[0].cases[0].seconds == pytest.approx((20e-6, 30e-6))


OLD = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid   1320 on       v100 device  0 [0x00] Tesla V100-SXM2-16GB
#   Rank  1 Pid   1320 on       v100 device  1 [0x00] Tesla V100-SXM2-16GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    50.00   20.97   20.97  2e-07    51.00   20.56   20.56  2e-07
# Out of bounds values : {wrong}
# Avg bus bandwidth    : 20.8
"""


NEW = """\
# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_gather_perf
# nThread 1 nGpus 1 minBytes 65536 maxBytes 65536 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 2 \
validation: 1 graph: 3 unalign: 0
# Blocking Enabled: wait for completion after each collective (no barrier)
#
# Using devices
#  Rank  0 Group  0 Pid  11 on node-01 device  0 [0000:18:00] NVIDIA H200
#  Rank  1 Group  0 Pid  12 on node-02 device  0 [0000:18:00] NVIDIA H200
#
#   size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% \
time algbw busbw #wrong i_min i_max i_p99 i_cv% timestamp
65536 8192 float none -1 16.0 4.10 2.05 0 15.0 18.0 17.9 3.1 \
15.0 4.37 2.18 N/A 14.0 17.0 16.9 3.2 2026-01-31 12:00:01
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 2.1
#
# Collective test concluded: all_gather_perf
"""


def test_the_newest_table_with_iterations_and_timestamps(tmp_path):
    (tmp_path / "new.txt").write_text(NEW)

    (run,) = read(tmp_path / "new.txt")
    assert run.policy == "iters=20,warmup=1,agg=2,graph=3,blocking=2,ranks=unstated"
    assert run.stack == {"nccl.version": "2.28.9"}
    assert run.host == "node-01, node-02"
    out, inside = run.cases
    assert (out.op, out.world_size, out.calls, out.params["place"]) == ("all_gather", 2, 120, "out")
    assert "redop" not in out.params
    times = {"min": 15e-6, "max": 18e-6, "p99": 17.9e-6}
    assert out.quantities == pytest.approx({f"iteration_{name}_seconds": s for name, s in times.items()})
    assert (inside.seconds, inside.facts) == (pytest.approx((15e-6,)), {"checked": "no"})


@pytest.mark.parametrize(("wrong", "status"), [("0 OK", Status.OK), ("7 FAILED", Status.WRONG_RESULT)])
def test_an_old_table_without_root_and_counts(tmp_path, wrong, status):
    (tmp_path / "old.txt").write_text(OLD.format(wrong=wrong))

    (run,) = read(tmp_path / "old.txt")
    assert [case.status for case in run.cases] == [status] * 2
    assert {case.op for case in run.cases} == {"all_reduce"}  # size is count elements, and redop is sum
    assert run.policy.endswith("ranks=unstated")
    assert run.cases[0].quantities == {"max_abs_error": 2e-07}


def test_an_output_that_ends_early_is_an_incomplete_run(tmp_path):
    import_file(files.nccl_table(tmp_path / "a.txt", ended=False), "old", "imported", tmp_path)

    assert [run["complete"] for run in rows(tmp_path, "runs")] == [False]


def test_the_same_file_is_noticed_whatever_it_is_called(tmp_path):
    path = files.nccl_table(tmp_path / "a.txt")
    import_file(path, "old", "imported", tmp_path)
    again = path.rename(tmp_path / "b.txt")

    with pytest.raises(UsageError, match=r"b\.txt is in campaign 'imported' already, as stack 'old'"):
        import_file(again, "new", "imported", tmp_path)
    assert CliRunner().invoke(app, ["merge", "imported", "--results", str(tmp_path)]).exit_code == 0
    with pytest.raises(UsageError, match="already"):
        import_file(again, "new", "imported", tmp_path)
    assert len(rows(tmp_path, "runs")) == 1


def cut_row(tmp_path):
    path = files.nccl_table(tmp_path / "a.txt", ended=False)
    path.write_text(path.read_text().rstrip()[:-20])
    return path, r"a\.txt, line 20: a row of 11 columns in a table of 13; was the run killed"


def lonely_ranks(tmp_path):
    path = files.nccl_table(tmp_path / "a.txt", ranks=1)
    text = path.read_text()
    header = text[: text.index("NCCL version")]
    path.write_text(header + text)
    return path, r"a\.txt, line 2: no table follows this header: .*MPI=1"


def other_ranks(tmp_path):
    path = files.nccl_table(tmp_path / "a.txt", ranks=8)
    path.write_text(path.read_text().replace("#  Rank  7", "#  Reserve  7"))
    return (
        path,
        r"a\.txt, line 2: at 268435456 bytes busbw is 1\.75 times algbw, all_reduce over 7 ranks gives 1\.71",
    )


def unnamed(tmp_path):
    path = files.nccl_table(tmp_path / "log.txt", program="broadcast_perf")
    path.write_text("\n".join(path.read_text().replace(" sum ", " none").splitlines()[1:]))
    return path, r"log\.txt, line 1: nothing names the test of this table; write its command line"


def cut_json(tmp_path):
    path = files.write(tmp_path / "a.json", files.nccl_document())
    path.write_text(path.read_text()[:-40].rstrip())
    return path, r"a\.json, line \d+: column \d+ is no JSON \(.*the run killed"


def wrong_type(tmp_path):
    document = files.nccl_document()
    document["results"][1]["in_place"]["time"] = "soon"
    path = files.write(tmp_path / "a.json", document)
    line = next(i for i, one in enumerate(path.read_text().splitlines(), start=1) if '"soon"' in one)
    return path, rf"a\.json, line {line}: results\[1\]\.in_place\.time is 'soon', expected a number"


def newer_version(tmp_path):
    document = {**files.nccl_document(), "version": 3}
    return files.write(tmp_path / "a.json", document), r"a\.json, line 2: version is above 2, the newest"


def no_config(tmp_path):
    document = {key: value for key, value in files.nccl_document().items() if key != "config"}
    return files.write(tmp_path / "a.json", document, None), r"line 1: the document has no 'config'"


def wrong_matrix(tmp_path):
    document = files.nvbandwidth_document()
    document["nvbandwidth"]["testcases"][0]["bandwidth_matrix"] = [50.0]
    return files.write(
        tmp_path / "n.json", document
    ), r"line \d+: .*bandwidth_matrix\[0\] is 50\.0, expected a list"


def bad_line(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(files.SUPERBENCH[0]) + "\n\n{'node': 1}\n")
    return path, r"s\.jsonl, line 3: is no JSON"


def bad_value(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text('{"node": "a", "mem-bw/h2d_bw:0": 26.1}\n{"node": "b", "mem-bw/h2d_bw:0": [1]}\n')
    return path, r"s\.jsonl, line 2: mem-bw/h2d_bw:0 is a list, expected a number"


def no_text(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"# a\n\xff\xfe\n")
    return tmp_path / "x.txt", r"x\.txt, line 2: holds bytes that are no text"


def other_text(tmp_path):
    (tmp_path / "x.txt").write_text("hello\n")
    return tmp_path / "x.txt", r"no table of nccl-tests; can be imported: nccl-tests JSON, nvbandwidth JSON"


def other_json(tmp_path):
    return files.write(tmp_path / "x.json", {"a": 1}), r"JSON of another tool \(a\); can be imported:"


def own_json(tmp_path):
    return files.write(tmp_path / "x.json", {"machine_info": {}}), r"name it in `cuda-gains compare`"


def missing(tmp_path):
    return tmp_path / "none.txt", r"none\.txt cannot be read \(No such file or directory\)"


DAMAGE = [
    *(cut_row, lonely_ranks, other_ranks, unnamed, cut_json, wrong_type, newer_version, no_config),
    *(wrong_matrix, bad_line, bad_value, no_text, other_text, other_json, own_json, missing),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_one_sentence_with_its_line_and_nothing_is_written(tmp_path, damage):
    path, told = damage(tmp_path)

    with pytest.raises(CudaGainsError, match=told) as caught:
        import_file(path, "old", "imported", tmp_path / "r")
    assert isinstance(caught.value, UsageError)
    assert "\n" not in str(caught.value)
    assert not rows(tmp_path / "r", "cases")


def test_a_number_that_fits_no_table_is_told_with_the_file_and_nothing_is_written(tmp_path):
    document = files.nccl_document()
    document["config"]["iterations"] = 2**40
    path = files.write(tmp_path / "a.json", document)

    with pytest.raises(DataError, match=r"a\.json: field 'calls' does not fit"):
        import_file(path, "old", "imported", tmp_path / "r")
    assert not rows(tmp_path / "r", "cases")


def spots(value, way=()):
    """The way to every value of a document."""
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from spots(one, (*way, key))


@pytest.mark.parametrize(
    "document", [files.nccl_document(), files.nvbandwidth_document(), files.nvbench_document(3)]
)
def test_whatever_stands_in_a_document_it_is_read_or_told(tmp_path, document):
    draw = random.Random(1)
    path, told = tmp_path / "all_reduce_perf.json", []
    for _ in range(150):
        spoiled = json.loads(json.dumps(document))
        *way, last = draw.choice([one for one in spots(spoiled) if one])
        inner = functools.reduce(lambda value, key: value[key], way, spoiled)
        inner[last] = draw.choice([None, -1, 0, 1e300, "x", "nan", [], {}, [1], True, "1e5", 2**70, ""])
        try:
            read(files.write(path, spoiled))
        except CudaGainsError as error:
            told.append(str(error))
    assert len(told) > 20
    assert all(str(path) in sentence for sentence in told)


def test_nvbandwidth(tmp_path):
    (run,) = read(files.write(tmp_path / "n.json", files.nvbandwidth_document()))

    assert run.stack == {}
    assert run.driver == {"driver.version": "550.54.15", "driver.cuda": "12.4"}
    assert (run.host, run.gpu_name, run.policy) == ("node-01", files.GPU, "nvbandwidth v0.8")
    good = {(c.op, c.params["row"], c.params["column"]): c for c in run.cases if c.status is Status.OK}
    assert len(good) == 6  # the diagonal is N/A
    copy = good["host_to_device_memcpy_ce", 0, 1]
    assert (copy.nbytes / copy.seconds[0], copy.params["metric"]) == (pytest.approx(55.25e9), "bandwidth")
    latency = good["host_device_latency_sm", 0, 0]
    assert (latency.seconds[0], latency.params["metric"]) == (pytest.approx(800e-9), "latency")
    ended = {c.op: (c.status, c.reason) for c in run.cases if c.status is not Status.OK}
    assert ended == {
        "multinode_device_to_device_memcpy_read_ce": (Status.SKIPPED, "nvbandwidth says Waived"),
        "all_to_host_memcpy_ce": (Status.FAILED, "CUDA_ERROR_UNKNOWN"),
    }


def test_nvbandwidth_with_small_buffers_is_another_method(tmp_path):
    document = files.nvbandwidth_document()
    document["nvbandwidth"]["warning"] = "NOTE: You have chosen a buffer size that is smaller than ..."
    (run,) = read(files.write(tmp_path / "n.json", document))
    assert run.policy == "nvbandwidth v0.8, smaller buffers than its default"


def test_nvbandwidth_that_ended_in_an_error_keeps_what_was_there(tmp_path):
    document = files.nvbandwidth_document()
    document["nvbandwidth"]["error"] = "CUDA_ERROR_ILLEGAL_ADDRESS"
    done = import_file(files.write(tmp_path / "n.json", document), "old", "imported", tmp_path)
    assert done.notes == ("nvbandwidth ended with an error: CUDA_ERROR_ILLEGAL_ADDRESS",)
    assert [run["complete"] for run in rows(tmp_path, "runs")] == [False]
    nothing = {"nvbandwidth": {"version": "v0.8", "error": "no devices"}}
    with pytest.raises(DataError, match=r"line 4: .* says that the run failed: no devices"):
        read(files.write(tmp_path / "m.json", nothing))


def test_nvbench_means(tmp_path):
    (run,) = read(files.write(tmp_path / "copy.json", files.nvbench_document()))

    found = {(c.params["BlockSize"], c.params["metric"]): c for c in run.cases}
    assert found[256, "gpu"].seconds == (1e-5,)
    assert found[256, "gpu"].nbytes == 1e7
    assert {key: c.timing for key, c in found.items() if key[0] == 256} == {
        (256, "gpu"): "nvbench cold mean",
        (256, "cpu"): "nvbench cold mean",
        (256, "batch"): "nvbench batch mean",
    }
    assert (found[2048, "gpu"].status, found[2048, "gpu"].reason) == (Status.SKIPPED, "too many threads")
    assert (run.gpu_name, run.policy) == (files.GPU, "min_samples=10 min_time=0.5")


def test_nvbench_with_another_rule_to_stop_is_another_method(tmp_path):
    document = files.nvbench_document()
    words = ["bench", "--json", "copy.json", "--stopping-criterion", "sample-count", "--target-samples", "50"]
    document["meta"]["argv"] = words
    document["benchmarks"][0] |= {"cold_warmup_runs": 1, "batch_target_time": 0.5}  # as 0.3 writes it
    (run,) = read(files.write(tmp_path / "copy.json", document))
    settings = "min_samples=10 min_time=0.5 cold_warmup_runs=1 batch_target_time=0.5"
    assert run.policy == f"{settings} stopping-criterion=sample-count target-samples=50"


def test_nvbench_samples_beside_the_json(tmp_path):
    path = files.write(tmp_path / "copy.json", files.nvbench_document(samples=3))
    (tmp_path / "copy.json-bin").mkdir()
    (tmp_path / "copy.json-bin" / "0.bin").write_bytes(struct.pack("<3f", 1e-5, 1.1e-5, 9e-6))

    (case,) = [c for c in read(path)[0].cases if c.timing == "nvbench cold samples"]
    assert case.seconds == pytest.approx((1e-5, 1.1e-5, 9e-6), rel=1e-6)
    (tmp_path / "copy.json-bin" / "0.bin").write_bytes(b"1234")
    with pytest.raises(DataError, match=r"promises 3 samples in .*0\.bin, which holds 1"):
        read(path)


def test_superbench_a_node_a_run(tmp_path):
    path = tmp_path / "results-summary.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in files.SUPERBENCH))

    done = import_file(path, "old", "imported", tmp_path)
    assert (done.runs, done.cases, done.bad) == (2, 9, 1)
    assert done.notes == (
        "node-01: 1 metric of unknown unit or without a value left out (monitor/gpu_temperature:0, ...)",
    )
    first, second = read(path)
    assert (first.host, second.host) == ("node-01", "node-02")
    found = {(c.op, c.params["metric"], c.params.get("rank")): c for c in first.cases}
    assert found["kernel-launch", "event_time", 1].seconds == pytest.approx((5.6e-6,))
    assert found["nccl-bw", "allreduce_8_time", 0].seconds == pytest.approx((37.84e-6,))
    assert ("nccl-bw", "allreduce_8_busbw", 0) not in found  # its time says it
    gemm = found["gemm-flops", "fp16_tc_flops", 0]
    assert gemm.flop / gemm.seconds[0] == pytest.approx(250e12)
    step = found["resnet_models", "fp16_train_step_time", None]
    assert (step.seconds, step.params["model"]) == (pytest.approx((80.5e-3,)), "pytorch-resnet50")
    assert found["resnet_models", "fp16_train_throughput", None].seconds == pytest.approx((1 / 2000,))
    assert found["ib-loopback", "return_code", None].reason == "its return code is 3"


# Names as SuperBench documents them, with the seconds that its value of 2 means; None: left out.
SUPERBENCH_NAMES = [
    ("kernel-launch/host_dispatch_us:0", 2e-6),
    ("kernel-launch/launch_throughput_mkps:0", 0.5),
    ("nccl-bw:ib/allreduce_0_1:8388608_time:0", 2e-6),
    ("nvbandwidth/host_to_device_memcpy_ce_cpu0_gpu1_bw:0", 0.5),
    ("nvbandwidth/host_to_device_memcpy_ce_sum_bw:0", None),
    ("nvbandwidth/host_device_latency_sm_cpu0_gpu0_lat:0", None),  # documented as µs, printed in ns
    ("cpu-stream/copy_throughput:0", 0.5),
    ("cpu-stream/copy_time_avg:0", 2.0),
    ("pytorch-sharding-matmul/allreduce_time:0", 2e-3),
    ("pytorch-computation-communication-overlap/mul_time:0", 2e-3),
    ("pytorch-dist-inference/step_times_99.9", 2e-3),
    ("model-benchmarks:gpt/pytorch-gpt2-small/fp16_inference_step_time_99.9", 2e-3),
    ("model-benchmarks:gpt/pytorch-gpt2-small/fp16_inference_throughput_99.9", 0.5),
    ("ort-inference/fp16_resnet50_time_99.9", 2e-3),
    ("cpu-hpl/throughput", None),
    ("gpu-burn/time", None),  # of the test, as asked for
]


@pytest.mark.parametrize(("name", "seconds"), SUPERBENCH_NAMES)
def test_units_of_superbench_are_those_of_its_documentation(tmp_path, name, seconds):
    path = tmp_path / "results-summary.jsonl"
    path.write_text(json.dumps({"node": "a", "mem-bw/h2d_bw:0": 26.1, name: 2.0}) + "\n")
    found = [case.seconds[0] for case in read(path)[0].cases if case.op != "mem-bw"]
    assert found == ([] if seconds is None else [pytest.approx(seconds)])


def both(tmp_path, old, new):
    for stack, scales in (("old", old), ("new", new)):
        for i, scale in enumerate(scales):
            path = files.nccl_table(tmp_path / f"{stack}-{i}.txt", scale=scale)
            import_file(path, stack, "imported", tmp_path)
    return sides.pair("old", "new", "imported", tmp_path)


def test_imported_results_are_compared_with_one_another(tmp_path):
    a, b = both(tmp_path, [1.0, 1.01, 0.99, 1.005], [0.8, 0.81, 0.79, 0.805])

    found = compare(a, b)
    assert {row.change for row in found.cases} == {Change.FASTER}
    assert found.cases[0].ratio == pytest.approx(0.8, rel=0.02)
    assert found.attribution == "no component of the stack differs; nothing is known of the driver"


def test_of_imports_without_versions_nothing_is_known_of_what_differs(tmp_path):
    for stack, seconds in (("old", 26.1), ("new", 25.0)):
        path = tmp_path / f"{stack}.jsonl"
        path.write_text(json.dumps({"node": "a", "mem-bw/h2d_bw:0": seconds}) + "\n")
        import_file(path, stack, "imported", tmp_path / "results")
    found = compare(*sides.pair("old", "new", "imported", tmp_path / "results"))
    assert found.attribution == "nothing is known of what differs"


def test_other_options_of_the_tool_are_another_method(tmp_path):
    import_file(files.nccl_table(tmp_path / "a.txt"), "old", "imported", tmp_path)
    other = files.nccl_table(tmp_path / "b.txt")
    other.write_text(other.read_text().replace("warmup iters: 5", "warmup iters: 1"))
    import_file(other, "new", "imported", tmp_path)

    rows = compare(*sides.pair("old", "new", "imported", tmp_path)).cases
    assert {row.change for row in rows} == {Change.NOT_COMPARABLE}
    assert "warmup=5" in rows[0].reason
    assert "warmup=1" in rows[0].reason


def test_imported_results_are_never_compared_with_ours(tmp_path):
    import_file(files.nccl_table(tmp_path / "a.txt"), "old", "mixed", tmp_path)
    theirs = store.load(tmp_path, ["mixed"]).cases.iloc[0]
    same = Case(theirs["family"], theirs["op"], json.loads(theirs["params"]))  # even under one name
    write_campaign(tmp_path, "mixed", {"new": 1.0}, rounds=3, null=False, measured=[SyntheticCase(same)])

    found = compare(*sides.pair("old", "new", "mixed", tmp_path))
    (row,) = found.cases
    assert row.change is Change.NOT_COMPARABLE
    assert "timing nccl-tests against native" in row.reason
    assert len(found.left_out) == 5  # measured on one side only


def test_nothing_is_measured_into_a_campaign_of_imports(tmp_path, monkeypatch, capsys):
    import_file(files.nccl_table(tmp_path / "a.txt"), "old", "imported", tmp_path / "results")
    folder = CampaignFolder(tmp_path / "results", "imported")
    for device in ("cuda", "cpu"):
        with pytest.raises(
            UsageError, match=r"'imported' in .* holds results of other tools.* another campaign"
        ):
            held.require_alike(folder, device)
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ["run", "--stack", "here", "--rounds", "1", "--device", "cpu", "--campaign", "imported"]
    monkeypatch.setattr(sys, "argv", ["cuda-gains", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "holds results of other tools" in capsys.readouterr().err
    assert not (folder.path / "plan.json").exists()


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize(("device", "other"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_campaign_is_of_a_gpu_or_of_the_cpu(tmp_path, device, other, finish):
    info = run_info("c", "here", device=device)
    made = [measurement(SyntheticCase(Case("a", "b")), [1.0])]
    write_run(tmp_path, info, identity(Machine()), made, finish=finish)
    folder = CampaignFolder(tmp_path, "c")
    held.require_alike(folder, device)
    held.require_alike(CampaignFolder(tmp_path, "another"), other)
    with pytest.raises(
        UsageError, match=r"'c' in .* was measured on .*would measure .* \(a reason\); the two"
    ):
        held.require_alike(folder, other, "a reason")
    if finish:
        (folder.path / "runs" / "0.parquet").write_bytes(b"damaged")
        with pytest.raises(UsageError, match="was measured on"):
            held.require_alike(folder, other)


def test_a_campaign_of_our_own_measurements_is_left_as_it_is(tmp_path):
    write_campaign(tmp_path, "before", {"here": 1.0}, rounds=1, null=False)
    write_campaign(tmp_path, "after", {"here": 1.0}, rounds=1, null=False)
    with pytest.raises(UsageError, match=r"'before' holds measurements of this suite.* another campaign"):
        import_file(files.nccl_table(tmp_path / "a.txt"), "old", "before", tmp_path)
    assert sides.resolve("before", None, tmp_path).label == "before"  # one stack still

    merge(tmp_path, "before")
    with pytest.raises(UsageError, match="holds measurements of this suite"):
        import_file(tmp_path / "a.txt", "old", "before", tmp_path)


@pytest.mark.parametrize("damage", [Path.touch, Path.mkdir])
def test_a_campaign_that_cannot_be_read_might_hold_our_own_and_is_left_as_it_is(tmp_path, damage):
    import_file(files.nccl_table(tmp_path / "a.txt"), "old", "c", tmp_path)
    damaged = tmp_path / "c/runs/damaged.parquet"
    damage(damaged)
    with pytest.raises(UsageError, match=f"{damaged} cannot be read, .* restore that file, then import"):
        import_file(files.nccl_table(tmp_path / "b.txt", scale=2), "new", "c", tmp_path)


def test_imported_runs_may_be_merged_and_added_to(tmp_path):
    import_file(files.nccl_table(tmp_path / "a.txt"), "old", "imported", tmp_path)
    merge(tmp_path, "imported")
    import_file(files.nccl_table(tmp_path / "b.txt", scale=2), "new", "imported", tmp_path)
    assert set(store.load(tmp_path, ["imported"]).runs["stack"]) == {"old", "new"}


def test_a_file_is_noticed_in_what_was_merged_elsewhere(tmp_path):
    path = files.nccl_table(tmp_path / "a.txt")
    import_file(path, "old", "imported", tmp_path)
    merge(tmp_path, "imported")
    folder = CampaignFolder(tmp_path, "imported")
    for table in ("samples", "cases", "runs"):  # as a merge in a bucket names them
        folder.table(table, "merged").rename(folder.table(table, f"merged-{'0' * 32}"))
    with pytest.raises(UsageError, match="already, as stack 'old'"):
        import_file(path, "new", "imported", tmp_path)


def test_where_nothing_is_shared_the_comparison_says_so(tmp_path):
    import_file(files.nccl_table(tmp_path / "a.txt"), "old", "mixed", tmp_path)
    write_campaign(tmp_path, "mixed", {"new": 1.0}, rounds=3, null=False)

    found = compare(*sides.pair("old", "new", "mixed", tmp_path))
    assert found.cases == ()
    assert (
        "nothing is compared: old holds nccl-tests and new holds canary, launch, and only what was measured "
        "in one way is compared"
    ) in found.notes
    guard = [
        "compare",
        "old",
        "new",
        "--campaign",
        "mixed",
        "--results",
        str(tmp_path),
        "--fail-on",
        "slower",
    ]
    done = CliRunner().invoke(app, guard)
    assert done.exit_code == 1  # a guard that saw nothing is no pass
    assert "no case was compared" in done.output


def test_the_command(tmp_path):
    paths = [str(files.nccl_table(tmp_path / f"{i}.txt", scale=1 + i / 100)) for i in range(2)]
    asked = ["import", *paths, "--stack", "old", "--results", str(tmp_path / "r"), "--campaign", "cluster"]
    done = CliRunner().invoke(app, asked)

    assert done.exit_code == 0
    assert done.output.splitlines() == [
        f"{path}: nccl-tests table, 1 run with 6 cases into cluster/old" for path in paths
    ]
    with pytest.raises(UsageError, match=r"stack name '\.\./x' has characters"):
        import_file(tmp_path / "0.txt", "../x", "cluster", tmp_path)


# --- the formulas

# Size, microseconds, algbw and busbw as nccl-tests printed them in reports that are public. The first two
# come from 8 GPUs of one node; the report of the others does not say how many ranks it had, 24 follows from
# its busbw by algbw: those rows check algbw, and that one number of ranks explains them all.
PUBLISHED = [
    ("all_reduce", 8, 2048, 16.49, 0.12, 0.22),
    ("all_reduce", 8, 4096, 16.69, 0.25, 0.43),
    ("all_reduce", 24, 2097152, 2325.3, 0.90, 1.73),
    ("all_reduce", 24, 16777216, 1334.9, 12.57, 24.09),
    ("all_reduce", 24, 536870912, 193909, 2.77, 5.31),
]


@pytest.mark.parametrize(("op", "ranks", "nbytes", "microseconds", "alg", "bus"), PUBLISHED)
def test_bandwidths_are_those_that_nccl_tests_printed(op, ranks, nbytes, microseconds, alg, bus):
    assert algbw(nbytes, microseconds * 1e-6) / 1e9 == pytest.approx(alg, abs=0.0051)
    assert busbw(op, nbytes, microseconds * 1e-6, ranks) / 1e9 == pytest.approx(bus, abs=0.0051)


@pytest.mark.parametrize(
    ("op", "seconds"),  # the best time of S bytes over n ranks with links of B, as PERFORMANCE.md derives it
    [
        ("all_reduce", lambda s, n, b: (s * 2 * (n - 1)) / (n * b)),
        ("reduce_scatter", lambda s, n, b: s * (n - 1) / (b * n)),
        ("all_gather", lambda s, n, b: s * (n - 1) / (b * n)),
        ("alltoall", lambda s, n, b: s * (n - 1) / (b * n)),
        ("broadcast", lambda s, n, b: s / b),
        ("reduce", lambda s, n, b: s / b),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_the_best_time_has_the_busbw_of_the_link(op, seconds, ranks):
    assert busbw(op, 1e9, seconds(1e9, ranks, 450e9), ranks) == pytest.approx(450e9)


def test_one_rank_has_no_busbw():
    assert busbw("all_reduce", 8, 1e-6, 1) is None
    assert factor("broadcast", 1) is None
    assert factor("barrier", 8) is None
