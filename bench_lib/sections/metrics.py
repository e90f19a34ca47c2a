"""What each family asks, each metric times and each quantity counts: one line each, for every page."""

from collections.abc import Iterable

from bench_lib.comparing.changes import CaseChange
from bench_lib.comparing.replicates import SECONDS

FAMILIES = {
    "launch": "what one small kernel costs to launch",
    "ladder": "the same launch through several CUDA runtimes in one process",
    "canary": "has the machine changed? No software upgrade should move these",
    "amp_conv": "convolutions and training steps in fp32, TF32, fp16 and bf16",
    "cudnn_selection": "what cudnn.benchmark gains and costs, and which kernels run",
    "unified_memory": "page migration by faults, prefetch and advice beside plain copies",
    "module_loading": "making a context and the first use of libraries, with lazy and with eager loading",
    "mps": "several processes on one GPU, time-sliced and under NVIDIA's multi-process service",
    "allocator": "what torch's CUDA allocator reserves for traces of allocations, and what one costs",
    "tma": "copies and products through the tensor memory accelerator and without, attention by backend",
    "stream_overlap": "copies beside kernels on two streams, DataLoader workers beside training steps",
    "compile_resnet50": "torch.compile on ResNet-50: steps, the first step, and when it has paid",
    "allreduce": "AllReduce and other collectives by size, through torch and through NCCL itself",
    "nccl_ladder": "the same AllReduce through several NCCL versions in one pair of processes",
    "ddp_step": "training steps under DistributedDataParallel, and what communication adds to them",
    "fsdp_step": "training steps under fully_shard, and what communication adds to them",
    "cross_check": "the same work timed by this suite and by nvbench: do two rulers agree?",
    "onnx_export": "torch.onnx.export: time, success, and whether onnxruntime computes the same",
    "dtensor_fsdp_smoke": "DTensor, tensor parallelism, fully_shard, checkpoints: do they work over ranks?",
}
METRICS = {
    "submit": "host time of the call that starts the work, with the queue far from full",
    "launch_sync": "the call and the wait until the GPU has done the work",
    "period": "device time per launch of many queued ones, so that nothing waits for the host",
    "first": "the first launch of a fresh process, its context already created",
    "init": "what a fresh process does before its first launch: loading the library and the kernel",
    "instantiate": "making an executable graph from a graph",
    "total": "launching a whole graph and waiting for its end",
    "time": "the duration of one call of the case",
    "cold": "device time of one call on a flushed L2",
    "batch": "device time of a call, many of them back to back",
    "step": "one training step (forward, backward, optimizer), or one batch of inference",
    "forward": "of a training step, the forward pass and the loss",
    "backward": "of a training step, the backward pass",
    "optimizer": "of a training step, the optimizer's update",
    "communication": "of a training step over ranks, its communication alone",
    "first_cold": "the first step of a fresh process whose compile caches are empty",
    "first_warm": "the first step of a fresh process with the caches that a cold one left",
    "tuning": "the one call in which an algorithm is chosen: with tuning, all are tried in it",
    "first_walk": "batches of changing size, each size for the first time",
    "second_walk": "the same batches again, every size known",
    "exchange": "of a step, what it takes longer than its passes over weights that are already there",
    "fault": "one page fault of the GPU: what a hop more costs in a dependent chain of faults",
    "hop": "one access of a dependent chain of reads",
    "alloc": "one allocation",
    "per_request": "wall time in which some client's request is done: one over the throughput of all",
    "latency": "one request for its client: the median over the clients of their medians",
    "latency_p99": "99th percentile over the requests of all clients",
    "allocator/first": "one allocation and its release with an empty cache, which asks the driver for memory",
    "allocator/again": "one allocation and its release with a cache that has seen the same",
    "allocator/limited": "one allocation and its release in the least memory that the trace fits into",
    "allocator/soak": "one allocation and its release, in each of sixty parts of the time",
    "allocator/time": "one transfer of pageable memory to the GPU",
    "stream_overlap/batch": "a batch from the DataLoader and a training step on it",
    "stream_overlap/time": "eight copies and as many runs of kernels, until all are done",
    "free": "one release of an allocation",
    "module_loading/init": "loading a library and making its handle, in a process that has a context",
    "module_loading/first": "the first time of it in a fresh process: a context, a library's first call",
    "cudnn_selection/first": "the first call of a fresh process, after a convolution of another shape",
    "unified_memory/step": "moving all weights to the GPU, its pass over them, back, and the CPU's pass",
    "unified_memory/time": "from the call until all bytes are there",
}

QUANTITIES = {
    "peak_nbytes": "bytes of GPU memory that tensors held at most",
    "peak_reserved_nbytes": "bytes of GPU memory that torch's allocator held at most",
    "fragmentation": "share of the reserved bytes that is not used even at the peak, from 0 to 1",
    "unused_nbytes": "bytes that are reserved and not allocated when the trace is at its peak",
    "largest_free_nbytes": "the largest unused block when the trace is at its peak",
    "segments": "pieces of memory that the allocator holds of the driver",
    "device_allocs": "calls that asked the driver for memory, in one replay from an empty cache",
    "retries": "times that the allocator gave its cache back and asked the driver again",
    "needed_peaks": "the least memory that the trace fits into, in peaks of the trace",
    "needed_nbytes": "the same in bytes",
    "bare_tensor_seconds": "the same trace of tensors without memory: what torch takes for the tensors alone",
    "time_growth": "times of the last third of a soak over those of the first, settled",
    "reserved_growth": "bytes reserved in the last third of a soak over those in the first, settled",
    "overlap_ratio": "time on one stream over time on two, within turns",
    "overlap_bound": "the most that ratio can be: both parts alone over the longer of them",
    "copy_alone_seconds": "the copies of a pass without its kernels",
    "compute_alone_seconds": "the kernels of a pass without its copies",
    "products_a_chunk": "matrix products that take as long as one copy, found before measuring",
    "waiting_share": "share of a batch's time in which training waits for the loader, from 0 to 1",
    "step_alone_seconds": "a training step whose batch lies ready",
    "exposed_seconds": "what a step takes longer than the same one without communication",
    "communication_seconds": "the communication of a step alone",
    "overlap_share": "share of the communication that did not lengthen the step, 1 where it is hidden whole",
    "cpus": "CPUs that the process may use",
    "workspace_nbytes": "bytes of scratch memory that the chosen algorithm asked for",
    "relative_error": "error of the result against one in fp64, relative to its size",
    "output_relative_error": "error of the output against the same step in fp32, relative to its size",
    "gradient_relative_error": "error of the gradients against the same step in fp32, relative to their size",
    "final_loss": "loss after the last step",
    "accuracy": "share of the test images that are told right, from 0 to 1",
    "host_share": "share of a step's time in which the CPU queues its work: at 1 the CPU is the limit",
    "compile_seconds": "what the first step took longer than eager's",
    "payback_steps": "steps until the compiled ones have made up for that",
    "payback_batches": "batches until tuned convolutions have made up for their tuning",
    "taken_nbytes": "bytes of GPU memory that it took, as NVML sees it from outside",
    "requests_a_window": "requests that all clients did in one window",
    "slowest_client_seconds": "median latency of the slowest client",
    "fastest_client_seconds": "median latency of the fastest client",
    "exports_succeeded": "of a set of small modules those that were exported and compute the same",
    "exports_tried": "how many small modules that set holds",
    "onnx_nbytes": "bytes of the exported file with its weights",
    "onnx_nodes": "operators in the exported graph",
    "max_abs_error": "largest difference between two results",
    "cycles_a_hop": "SM cycles of one access of a dependent chain of reads",
}
_OWN = "defined in the family's benchmark file"


def metric_text(family: str, metric: str) -> str:
    """What a metric is, in one line."""
    return METRICS.get(f"{family}/{metric}", METRICS.get(metric, _OWN))


def quantity_meaning(name: str) -> str:
    """What a quantity is, in one line."""
    return QUANTITIES.get(name, _OWN)


def definitions(rows: Iterable[CaseChange]) -> list[tuple[str, str]]:
    """Every metric and quantity among these rows by name, each with its line."""
    found = {
        (row.metric, metric_text(row.family, row.metric))
        if row.unit == SECONDS
        else (row.unit, quantity_meaning(row.unit))
        for row in rows
    }
    return sorted(found)
