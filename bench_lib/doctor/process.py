"""What is attached to this process and falls to those that it starts: debuggers, profilers, sanitizers."""

import re
import sys
from pathlib import Path

from bench_lib.doctor.snapshot import Process
from bench_lib.identity.machine import ROOT, text

# Libraries that get in between: Nsight Systems and Compute, compute-sanitizer, GCC's and LLVM's
# sanitizers, Valgrind. A plain libcupti is none of them: torch itself is linked against it.
INTERFERING = re.compile(
    r"lib(?:ToolsInjection|InterceptorInjection|TreeLauncher|cuda-injection|cuinj|nvtx-injection|"
    r"sanitizer-collection|(?:clang_rt\.)?(?:asan|tsan|ubsan|lsan|msan))|vgpreload_",
)


def process(root: Path = ROOT) -> Process:
    """This process."""
    return Process(tracer(root), hooks(), mapped(root))


def tracer(root: Path = ROOT) -> str:
    """The process that traces this one (gdb, strace): "gdb (pid 12)", "" when none does."""
    found = re.search(r"^TracerPid:\s*([1-9]\d*)", text(root / "proc/self/status"), re.MULTILINE)
    return f"{text(root / 'proc' / found[1] / 'comm') or 'a debugger'} (pid {found[1]})" if found else ""


def hooks() -> tuple[str, ...]:
    """Python's hooks that run at each line or call: those of pdb, coverage, cProfile."""
    found = [_name(hook) for hook in (sys.gettrace(), sys.getprofile()) if hook is not None]
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    tools = [monitoring.get_tool(tool) for tool in range(6)] if monitoring else []
    return tuple(dict.fromkeys([*found, *filter(None, tools)]))


def _name(hook: object) -> str:
    kind = type(hook)
    return str(getattr(hook, "__module__", None) or f"{kind.__module__}.{kind.__qualname__}")


def mapped(root: Path = ROOT) -> tuple[str, ...]:
    """The libraries of profilers and sanitizers in this process."""
    names = {Path(line.rpartition(" ")[2]).name for line in text(root / "proc/self/maps").splitlines()}
    return tuple(sorted(name for name in names if INTERFERING.match(name)))
