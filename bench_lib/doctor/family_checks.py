"""What the families of benchmarks need on this machine, and what of it is not there."""

import re

from bench_lib import extras
from bench_lib.doctor.driver_checks import NO_GPU
from bench_lib.doctor.finding import Check, Finding, State, absent, fail, of_sentence, ok, warn
from bench_lib.doctor.snapshot import GIB, Snapshot

_NEEDED = ("pytest", "pytest-benchmark", "pyarrow", "numpy")
_ONNX = ("onnx", "onnxruntime", "onnxscript")
_LEAST_SHM_NBYTES = GIB
_LEAST_MEMORY_NBYTES = 4 * GIB
_LEAST_DISK_NBYTES = GIB
_LEAST_OPEN_FILES = 1024
_NCCL_SLOW = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
}
_NCCL_FORCED = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_P2P_LEVEL")


def suite(s: Snapshot) -> Finding:
    """Does the stack's Python have what every run needs?"""
    if s.python.child.problem:
        mend = "install cuda-gains for that Python, or correct the stack's entry"
        return fail(
            f"{s.python.executable or 'its Python'} {s.python.child.story}",
            "a Python that runs the suite",
            mend,
        )
    missing = [name for name in _NEEDED if not s.versions(name)]
    if missing:
        return fail(f"no {', '.join(missing)}", "what a run needs", f"`pip install {' '.join(missing)}`")
    if not s.versions("numba"):
        needed = "numba, for the native loops of the launch and ladder families"
        return warn("no numba", needed, extras.cure("measure"))
    return ok(f"Python {s.python.version}, numba {s.versions('numba')[0].version}")


def compiler(s: Snapshot) -> Finding:
    """For torch.compile: does the compiler that Triton and Inductor take build a line of C?"""
    said = [sentence for sentence in s.python.compilers.values() if sentence and "Python.h" not in sentence]
    if not s.python.compilers:
        return absent("not asked")
    return (
        of_sentence(State.WARN, said[0], "repair it, or install gcc and g++")
        if said
        else ok("it compiles C and C++")
    )


def python_headers(s: Snapshot) -> Finding:
    """For torch.compile: are Python's headers there?"""
    if not s.python.version:
        return absent("not asked")
    if s.python.headers:
        return ok(s.python.headers)
    mend = "install the development package of this Python (python3-dev, python3-devel)"
    return warn("no Python.h", "Python's headers, for what Triton builds", mend)


def triton(s: Snapshot) -> Finding:
    """For torch.compile on a GPU: is Triton installed?"""
    if "triton" not in s.holds:
        return absent(f"stack {s.stack} holds no Triton")
    found = s.versions("triton") or s.versions("pytorch-triton")
    if found:
        return ok(f"{found[0].name} {found[0].version}")
    if not s.versions("torch") or not s.torch.cuda:
        return absent("no torch for CUDA")
    return warn(
        "no Triton", "the one this torch requires", "`pip install triton`; torch.compile cases are skipped"
    )


def cupy(s: Snapshot) -> Finding:
    """Is CuPy there once, and built for the CUDA major of the stack?"""
    if "cupy" not in s.holds:
        return absent(f"stack {s.stack} holds no CuPy")
    found = [d for d in s.python.distributions if d.name.startswith("cupy")]
    names = sorted({d.name for d in found})
    if len(names) > 1:
        return fail(
            f"{' and '.join(names)}",
            "one CuPy",
            f"`pip uninstall {' '.join(names)}`, then install one of them",
        )
    major = s.cuda.split(".")[0]
    if not found:
        mend = f"{extras.cure(f'cuda{major}')}; its cases are skipped" if major else "its cases are skipped"
        return (
            absent("no CuPy; without a GPU none is needed") if not s.device else warn("no CuPy", "one", mend)
        )
    built = re.fullmatch(r"cupy-cuda(\d\d)\d?x?", found[0].name)
    told = f"{found[0].name} {found[0].version}"
    if built and major and built[1] != major:
        mend = f"`pip uninstall {found[0].name}` and {extras.cure(f'cuda{major}')}"
        return warn(told, f"a CuPy for CUDA {major}, as the stack is", mend)
    return ok(told)


def onnx(s: Snapshot) -> Finding:
    """For onnx_export: are onnx, onnxruntime and onnxscript there?"""
    if "torch" not in s.holds:
        return absent(f"stack {s.stack} holds no torch")
    missing = [name for name in _ONNX if not s.versions(name)]
    if missing:
        mend = f"{extras.cure('onnx')}; its cases are skipped"
        return warn(f"no {', '.join(missing)}", "all three, for the family onnx_export", mend)
    return ok(", ".join(f"{name} {s.versions(name)[0].version}" for name in _ONNX))


def ladder(s: Snapshot) -> Finding:
    """For the ladder: are two CUDA runtimes or more at hand?"""
    if s.runtimes >= 2:
        return ok(f"{s.runtimes} runtimes")
    if s.device is None:
        return absent(NO_GPU)
    mend = "`cuda-gains stacks create cudart-11.8 cudart-12.4`, 1 MB each"
    return warn(f"{s.runtimes} runtimes in the cache", "two or more to compare", mend)


def nccl(s: Snapshot) -> Finding:
    """For collectives: is NCCL there, and does no variable slow it down or force its choices?"""
    variables = s.variables
    slow = [name for name, value in _NCCL_SLOW.items() if variables.get(name) == value]
    forced = [n for n in _NCCL_FORCED if n in variables]
    if slow:
        told = ", ".join(f"{name}={variables[name]}" for name in slow)
        mend = f"unset {' '.join(slow)}: made for debugging, it also turns off what NVLink gives"
        return warn(f"{told} slows collectives down", "none of them", mend)
    if forced:
        told = ", ".join(f"{name}={variables[name]}" for name in forced)
        return warn(told, "NCCL's own choice", f"unset {' '.join(forced)}, or keep it on both sides")
    if len(s.driver.devices) < 2:
        return absent("collectives need two GPUs")
    found = next(iter(s.torch.libraries.get("nccl", ())), None)
    if found is None:
        return warn(
            "no NCCL was loaded", "one, for the collectives", "install nvidia-nccl-cuNN for this CUDA"
        )
    return ok(f"{found.version} from {found.path}; NCCL_DEBUG=INFO tells which way it takes")


def ranks(s: Snapshot) -> Finding:
    """For collectives: how many ranks can this machine hold, one a GPU?"""
    n = len(s.driver.devices)
    if n >= 2:
        return ok(f"{n} ranks")
    return absent("1 GPU: collectives run as a smoke test only" if n else NO_GPU)


def shared_memory(s: Snapshot) -> Finding:
    """For collectives and data loaders: is /dev/shm large enough?"""
    found = f"{s.host.shm_free_nbytes / GIB:.2f} GiB free in /dev/shm"
    if s.host.shm_free_nbytes >= _LEAST_SHM_NBYTES:
        return ok(found)
    mend = (
        "`docker run --shm-size=8g` (or --ipc=host); in Kubernetes an emptyDir of medium Memory at /dev/shm"
    )
    return warn(found, "1 GiB or more", mend)


def memory(s: Snapshot) -> Finding:
    """Is there enough free host memory, within the container's limit?"""
    found = f"{s.host.available_nbytes / GIB:.1f} GiB"
    if s.host.available_nbytes >= _LEAST_MEMORY_NBYTES:
        return ok(found)
    return warn(found, "4 GiB or more", "end what uses it, or raise the container's limit")


def open_files(s: Snapshot) -> Finding:
    """May a process open enough files?"""
    limit = s.host.open_files
    if limit < 0 or limit >= _LEAST_OPEN_FILES:  # -1: without a limit
        return ok("no limit" if limit < 0 else str(limit))
    return warn(
        str(limit), f"{_LEAST_OPEN_FILES} or more", "`ulimit -n 65536`, or `docker run --ulimit nofile=65536`"
    )


def results_disk(s: Snapshot) -> Finding:
    """Can results be written, and is there room for them?"""
    host = s.host
    if not host.results_writable:
        return fail(
            f"{host.results} cannot be written", "a folder of yours", "choose another place with --results"
        )
    found = f"{host.results_free_nbytes / GIB:.1f} GiB free for {host.results}"
    if host.results_free_nbytes >= _LEAST_DISK_NBYTES:
        return ok(found)
    return warn(found, "1 GiB or more", "make room, or choose another place with --results")


def jupyter(s: Snapshot) -> Finding:
    """For notebooks: can a Jupyter on port 8888 be reached from outside?"""
    if not s.host.jupyter:
        return absent("nothing listens on port 8888; `jupyter lab` starts it")
    if s.host.jupyter == "loopback" and s.host.container != "none":
        mend = "start it with `jupyter lab --ip=0.0.0.0` and the container with -p 127.0.0.1:8888:8888"
        found = (
            "port 8888 listens on 127.0.0.1 inside the container: unreachable unless it has --network host"
        )
        return warn(found, "all its addresses", mend)
    if s.host.jupyter == "loopback":
        return ok("on 127.0.0.1; from another machine through `ssh -L 8888:localhost:8888`")
    return ok("on port 8888, for everybody who reaches this machine: keep its token")


# fmt: off
CHECKS = tuple(map(Check, (
    suite, compiler, python_headers, triton, cupy, onnx, ladder, nccl, ranks, shared_memory, memory,
    open_files, results_disk, jupyter
)))
# fmt: on
