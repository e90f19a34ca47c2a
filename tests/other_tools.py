"""Small files in the formats of nccl-tests, nvbandwidth, nvbench and SuperBench, with made-up numbers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GPU = "NVIDIA H100 80GB HBM3"
TABLE_HEAD = """\
#
#                                                              out-of-place                       in-place
#       size      count    type  redop   root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def microseconds(nbytes: int, scale: float = 1.0) -> float:
    """20 µs of latency, then 200 GB/s."""
    return scale * (20 + nbytes / 200e3)


def nccl_table(
    path: Path,
    sizes: Sequence[int] = (8, 1 << 20, 1 << 28),
    *,
    ranks: int = 8,
    scale: float = 1.0,
    wrong: int = 0,
    program: str = "all_reduce_perf",
    ended: bool = True,
) -> Path:
    """What all_reduce_perf prints on one node, with its command line; `wrong` elements at the last size."""
    lines = [
        f"$ ./build/{program} -b {sizes[0]} -e {sizes[-1]} -g {ranks}",
        f"# nThread 1 nGpus {ranks} minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) "
        "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid  28307 on    node-01 device {rank:2d} [0x{16 + rank:02x}] {GPU}"
            for rank in range(ranks)
        ),
        "NCCL version 2.21.5+cuda12.4",
        *TABLE_HEAD.splitlines(),
        *(row(size, ranks, scale, wrong if size == sizes[-1] else 0) for size in sizes),
        *(["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 100.0", "#"] if ended else []),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def row(size: int, ranks: int, scale: float = 1.0, wrong: int = 0) -> str:
    """A row of the table, both halves alike."""
    time = microseconds(size, scale)
    algbw = size / time / 1e3
    half = f"{time:9.2f}  {algbw:6.2f}  {algbw * 2 * (ranks - 1) / ranks:6.2f}  {wrong:5d}"
    return f"{size:12d}  {size // 4:12d}     float     sum      -1 {half} {half}"


def nccl_document(sizes: Sequence[int] = (8, 1 << 20, 1 << 28), ranks: int = 8, scale: float = 1.0) -> Any:
    """What option -J of all_reduce_perf writes of one process that drives all GPUs."""

    def half(size: int) -> dict[str, float]:
        time = microseconds(size, scale)
        algbw = size / time / 1e3
        return {"time": time, "alg_bw": algbw, "bus_bw": algbw * 2 * (ranks - 1) / ranks, "nwrong": 0.0}

    return {
        "version": 2,
        "start_time": "2026-01-31 12:00:00",
        "args": ["./build/all_reduce_perf", "-g", str(ranks), "-J", "out.json"],
        "env": ["HOME=/root", "NCCL_ALGO=Ring", "API_TOKEN=secret"],
        "nccl_version": 22105,
        "config": {
            "nthreads": 1,
            "ngpus": ranks,
            "minimum_bytes": sizes[0],
            "maximum_bytes": sizes[-1],
            "step_factor": 2,
            "warmup_iters": 5,
            "iterations": 20,
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": 0,
            "blocking_collectives": "false",
            "parallel_init": "false",
            "devices": [{"rank": 0, "group": 0, "hostname": "node-01", "device": 0, "device_info": GPU}],
        },
        "results": [
            {
                "size": size,
                "count": size // 4,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": half(size),
                "in_place": half(size),
                "actual_iterations": 20,
                "experiment_name": "",
            }
            for size in sizes
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "end_time": "2026-01-31 12:00:09",
    }


def write(path: Path, document: Any, indent: int | None = 2) -> Path:
    """A document as JSON."""
    path.write_text(json.dumps(document, indent=indent))
    return path


def nvbandwidth_document() -> Any:
    """Two GPUs: host to device, device to device with an empty diagonal, a latency; one waived, one not."""
    return {
        "nvbandwidth": {
            "version": "v0.8",
            "git_version": "v0.8",
            "CUDA Runtime Version": 12040,
            "Driver Version": "550.54.15",
            "Hostname": "node-01",
            "GPU Device list": [f"{i}: {GPU} (00000000:{i}8:00): (node-01)" for i in range(2)],
            "testcases": [
                {
                    "name": "host_to_device_memcpy_ce",
                    "status": "Passed",
                    "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
                    "bandwidth_matrix": [["50.0", "55.25"]],
                    "sum": 105.25,
                },
                {
                    "name": "device_to_device_memcpy_read_ce",
                    "status": "Passed",
                    "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                    "bandwidth_matrix": [["N/A", "400"], ["395.5", "N/A"]],
                    "sum": 795.5,
                },
                {
                    "name": "host_device_latency_sm",
                    "status": "Passed",
                    "bandwidth_description": "memory latency SM CPU(row) <-> GPU(column) (ns)",
                    "bandwidth_matrix": [["800", "810"]],
                    "sum": 1610,
                },
                {"name": "multinode_device_to_device_memcpy_read_ce", "status": "Waived"},
                {"name": "all_to_host_memcpy_ce", "status": "Error", "error": "CUDA_ERROR_UNKNOWN"},
            ],
        }
    }


def nvbench_document(samples: int | None = None) -> Any:
    """One benchmark with two states, one of them skipped; with the name of a file of samples if asked."""

    def value(name: str, text: str, kind: str = "float64") -> dict[str, str]:
        return {"name": name, "type": kind, "value": text}

    summaries = [
        {"tag": "nv/cold/time/gpu/mean", "name": "GPU Time", "data": [value("value", "1e-5")]},
        {"tag": "nv/cold/time/cpu/mean", "name": "CPU Time", "data": [value("value", "1.5e-5")]},
        {"tag": "nv/batch/time/gpu/mean", "name": "Batch GPU", "data": [value("value", "9e-6")]},
        {"tag": "nv/cold/bw/global/bytes_per_second", "name": "BW", "data": [value("value", "1e12")]},
    ]
    if samples is not None:
        told = [value("filename", "copy.json-bin/0.bin", "string"), value("size", str(samples), "int64")]
        summaries.append({"tag": "nv/json/bin:nv/cold/sample_times", "data": told})
    state = {"min_samples": 10, "device": 0, "is_skipped": False}
    return {
        "meta": {"version": {"nvbench": {"string": "0.1.0"}}},
        "devices": [{"id": 0, "name": GPU}],
        "benchmarks": [
            {
                "name": "copy",
                "min_samples": 10,
                "min_time": 0.5,
                "states": [
                    {**state, "axis_values": [value("BlockSize", "256", "int64")], "summaries": summaries},
                    {
                        **state,
                        "axis_values": [value("BlockSize", "2048", "int64")],
                        "summaries": None,
                        "is_skipped": True,
                        "skip_reason": "too many threads",
                    },
                ],
            }
        ],
    }


SUPERBENCH = [
    {
        "node": "node-01",
        "kernel-launch/return_code": 0,
        "kernel-launch/event_time:0": 0.0055,
        "kernel-launch/event_time:1": 0.0056,
        "nccl-bw:default/allreduce_8_time:0": 37.84,
        "nccl-bw:default/allreduce_8_algbw:0": 0.0,
        "nccl-bw:default/allreduce_8_busbw:0": 0.0,
        "gemm-flops/fp16_tc_flops:0": 250000.0,
        "resnet_models/pytorch-resnet50/fp16_train_step_time": 80.5,
        "resnet_models/pytorch-resnet50/fp16_train_throughput": 2000.0,
        "mem-bw/h2d_bw:0": 26.1,
        "ib-loopback/return_code": 3,
        "monitor/gpu_temperature:0": 40.0,
    },
    {"node": "node-02", "kernel-launch/return_code": 0, "kernel-launch/event_time:0": 0.0057},
]
