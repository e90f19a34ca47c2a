"""A pretended cuda.bench: its options are checked as nvbench's are, and it writes nvbench's files.

Put the folder above on PYTHONPATH. FAKE_NVBENCH is `die`, `hang`, `nothing` (it writes no file) or `skip`.
"""

import argparse
import json
import os
import signal
import struct
import time
from pathlib import Path

from bench_lib.device.driver import Driver

FATE = os.environ.get("FAKE_NVBENCH", "")
benchmarks = []


class Benchmark:
    def __init__(self, generator):
        self.generator, self.name = generator, "unnamed"

    def set_name(self, name):
        self.name = name
        return self


def register(generator):
    benchmarks.append(Benchmark(generator))
    return benchmarks[-1]


class Stream:
    def __init__(self, address):
        self.addressof = lambda: address


class State:
    """Times with events; a batch is ten calls, and nothing is held or flushed."""

    def __init__(self, context, samples):
        self.context, self.samples = context, samples
        self.stream = context.stream()
        self.cold, self.batch = [], None

    def get_stream(self):
        return Stream(self.stream)

    def exec(self, launcher, /, *, batched=None, sync=False):
        assert not sync
        self.cold = [self.timed(launcher, 1) for _ in range(self.samples)]
        self.batch = self.timed(launcher, 10) if batched in (None, True) else None

    def timed(self, launcher, calls):
        start, stop = self.context.event(), self.context.event()
        self.context.record(start, self.stream)
        for _ in range(calls):
            assert launcher(object()) is None
        self.context.record(stop, self.stream)
        self.context.synchronize(self.stream)
        return self.context.elapsed(start, stop) / calls


def options(argv):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--quiet", action="store_true")
    for name in ("--devices", "--min-samples", "--target-samples"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--timeout", "--batch-target-time"):
        parser.add_argument(name, type=float)
    parser.add_argument("--stopping-criterion", choices=["stdrel", "entropy", "sample-count"])
    parser.add_argument("--jsonbin", type=Path, required=True)
    return parser.parse_args(argv[1:])


def run_all_benchmarks(argv):
    given = options(argv)
    if FATE == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if FATE == "hang":
        time.sleep(60)
    if FATE == "nothing":
        return
    folder = given.jsonbin.with_name(f"{given.jsonbin.name}-bin")
    folder.mkdir()
    context = Driver.load().open()
    written = [benchmark_of(one, context, given, folder, i) for i, one in enumerate(benchmarks)]
    version = {"nvbench": {"string": "0.1.0"}, "json": {"string": "1.0.0"}}
    devices = [{"id": 0, "name": "pretended"}]
    document = {"meta": {"argv": argv, "version": version}, "devices": devices, "benchmarks": written}
    given.jsonbin.write_text(json.dumps(document, indent=2))


def benchmark_of(benchmark, context, given, folder, number):
    state = State(context, given.target_samples)
    skipped = "made to" if FATE == "skip" else ""
    try:
        if not skipped:
            benchmark.generator(state)
    except Exception as error:  # nvbench skips a state that raises
        skipped = str(error)
    told = {"name": "Device=0", "device": 0, "axis_values": None, "is_skipped": bool(skipped)}
    if skipped:
        told |= {"skip_reason": skipped, "summaries": None}
    else:
        told["summaries"] = summaries(state, folder, number)
    return {"name": benchmark.name, "index": number, "min_samples": given.min_samples, "states": [told]}


def summaries(state, folder, number):
    (folder / f"{number}.bin").write_bytes(struct.pack(f"<{len(state.cold)}f", *state.cold))
    mean = sum(state.cold) / len(state.cold)
    found = [
        summary("nv/cold/time/gpu/mean", ("value", "float64", mean)),
        summary("nv/cold/time/cpu/mean", ("value", "float64", 2 * mean)),
    ]
    if state.batch is not None:
        found.append(summary("nv/batch/time/gpu/mean", ("value", "float64", state.batch)))
    file = ("filename", "string", f"{folder.name}/{number}.bin"), ("size", "int64", len(state.cold))
    return [*found, summary("nv/json/bin:nv/cold/sample_times", *file)]


def summary(tag, *data):
    return {"tag": tag, "data": [{"name": n, "type": kind, "value": str(value)} for n, kind, value in data]}
