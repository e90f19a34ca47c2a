"""What is attached to a run, or set for it, that makes its times wrong."""

import re

from bench_lib.doctor.finding import Check, Finding, absent, fail, ok, warn
from bench_lib.doctor.snapshot import Snapshot

_OFF = ("", "0", "false", "off", "no")
_PRELOADED = re.compile(r"lib(?:clang_rt\.)?(?:asan|tsan|ubsan|lsan|msan)|vgpreload|valgrind", re.IGNORECASE)
_PROFILERS = re.compile(
    r"libToolsInjection|libInterceptorInjection|libTreeLauncher|nsight|nsys|libcuinj", re.IGNORECASE
)
_SANITIZER = re.compile(r"(?:asan|tsan|ubsan|lsan|msan)|vgpreload|sanitizer")
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
_PROFILED = ("NSYS_PROFILING_SESSION_ID", "NV_COMPUTE_PROFILER_", "NV_NSIGHT_INJECTION_")

# Set, each of these moves times: what it does.
_SLOWING = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "streams share hardware queues",
    "CUDA_FORCE_PTX_JIT": "every kernel is compiled by the driver at first use",
    "CUDA_CACHE_DISABLE": "what the driver compiles is not kept",
    "CUDA_MODULE_LOADING": "when code is loaded",
    "CUDA_SCALE_LAUNCH_QUEUES": "the depth of the launch queue",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "each tensor is a cudaMalloc",
    "PYTORCH_CUDA_ALLOC_CONF": "how torch's allocator works",
    "PYTORCH_ALLOC_CONF": "how torch's allocator works",
    "TORCH_LOGS": "torch.compile writes logs",
    "TORCH_DISTRIBUTED_DEBUG": "collectives are checked",
    "TORCH_NCCL_BLOCKING_WAIT": "the host waits for each collective",
    "NCCL_DEBUG": "NCCL writes logs",
    "CUDNN_LOGLEVEL_DBG": "cuDNN writes logs",
    "CUDNN_LOGINFO_DBG": "cuDNN writes logs",
    "CUBLAS_LOGINFO_DBG": "cuBLAS writes logs",
    "CUBLASLT_LOG_LEVEL": "cuBLASLt writes logs",
    "PYTHONDEVMODE": "Python checks what it does",
    "PYTHONMALLOC": "Python's memory is checked",
    "PYTHONTRACEMALLOC": "Python keeps where memory was taken",
    "GLIBC_TUNABLES": "how memory of the host is taken",
}
_QUIET = {"NCCL_DEBUG": ("warn", "version")}
_NOT_COMPILING = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")


def _on(s: Snapshot, name: str) -> bool:
    return s.variables.get(name, "").lower() not in (*_OFF, *_QUIET.get(name, ()))


def launch_blocking(s: Snapshot) -> Finding:
    """Does every launch wait for its kernel?"""
    if not _on(s, "CUDA_LAUNCH_BLOCKING"):
        return ok("no")
    return fail(
        "CUDA_LAUNCH_BLOCKING is set: every launch would wait for its kernel", "", "unset it to measure"
    )


def profiler(s: Snapshot) -> Finding:
    """Is a CUDA profiler or tracer injected, which adds to every call?"""
    if named := [name for name in _INJECTED if s.variables.get(name)]:
        found = f"{named[0]}={s.variables[named[0]]} loads a tool into every CUDA process"
        return fail(
            found, "no injected tool", f"unset {named[0]}, or run without nsys, ncu or compute-sanitizer"
        )
    started = [name for name in s.variables if name.startswith(_PROFILED)]
    mapped = [name for name in s.process.mapped if not _SANITIZER.search(name)]
    preload = s.variables.get("LD_PRELOAD", "")
    if started or mapped or _PROFILERS.search(preload):
        told = mapped[0] if mapped else started[0] if started else f"LD_PRELOAD={preload}"
        found = f"a profiler is attached to this process ({told})"
        return fail(found, "none", "run without nsys or ncu; profile in a run of its own")
    idle = [d for d in s.python.distributions if d.name == "cupti-python"]
    return ok(f"none attached; {idle[0].name} {idle[0].version} is installed" if idle else "none attached")


def debugger(s: Snapshot) -> Finding:
    """Is a debugger attached, or does Python trace every line (pdb, coverage, cProfile)?"""
    if s.process.tracer:
        mend = "detach it, or measure without gdb, cuda-gdb and strace"
        return fail(f"{s.process.tracer} traces this process", "no debugger", mend)
    if s.process.hooks:
        mend = "measure without pdb, coverage and cProfile"
        return fail(f"Python calls {', '.join(s.process.hooks)} at every line or call", "no tracing", mend)
    return ok("none")


def sanitizer(s: Snapshot) -> Finding:
    """Does a sanitizer or Valgrind check every access to memory?"""
    preload = s.variables.get("LD_PRELOAD", "")
    mapped = [name for name in s.process.mapped if _SANITIZER.search(name)]
    if mapped or _PRELOADED.search(preload):
        found = f"{mapped[0] if mapped else f'LD_PRELOAD={preload}'} checks every access to memory"
        return fail(found, "no sanitizer", "measure without ASan, TSan, compute-sanitizer and Valgrind")
    return ok("none")


def slowing_variables(s: Snapshot) -> Finding:
    """Is a variable set that moves times?"""
    names = [name for name in _SLOWING if _on(s, name)]
    if not names:
        return ok("none of them is set")
    told = ", ".join(f"{name}={s.variables[name]} ({_SLOWING[name]})" for name in names)
    return warn(told, "none, or the same on both sides", f"unset {' '.join(names)}")


def compiling(s: Snapshot) -> Finding:
    """Is torch.compile turned off, so that compiled cases would run eagerly?"""
    names = [name for name in _NOT_COMPILING if _on(s, name)]
    if not names:
        return ok("it compiles")
    return warn(
        f"{', '.join(names)} is set: torch.compile does nothing", "none of them", f"unset {' '.join(names)}"
    )


def precision_override(s: Snapshot) -> Finding:
    """Does a variable override the precision that cases ask for?"""
    names = [n for n in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") if n in s.variables]
    if not names:
        return absent("no override is set")
    told = ", ".join(f"{name}={s.variables[name]}" for name in names)
    return warn(
        f"{told} decides about TF32, whatever a case asks for", "none of them", f"unset {' '.join(names)}"
    )


# fmt: off
CHECKS = tuple(map(Check, (
    launch_blocking, profiler, debugger, sanitizer, slowing_variables, compiling, precision_override
)))
# fmt: on
