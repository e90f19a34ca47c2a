"""Imports point one way, and the two halves stay apart; importing anything loads no torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "bench_lib"

# Each module may import only modules that stand before it.
# fmt: off
BOTH = [
    "errors", "model", "units", "layout", "schema", "journal",
    "cache", "stacks", "startup", "environments", "elf", "swaps", "venvs", "stock",
]
MEASURING = [
    # the device
    "driver", "kernels", "cudart", "native", "telemetry", "gpu_lock", "gpu",
    # taking samples
    "timer", "measure", "turns", "bench",
    # what was measured on
    "machine", "libraries", "probe", "promises", "preflight",
    # the work of the families
    "launch", "first_launch",
    "memory_mode", "residency", "memory_kernels", "managed", "migration", "moves", "chains",
    "param_swap", "allocation",
    "precision", "tuning", "shapes", "convolutions", "cudnn_libraries", "observe", "cudnn",
    "path_convolution",
    "worker", "conv_worker", "kernel_names", "tuned_workers",
    "compile_preflight", "compiled_model", "training", "executions", "compile_children",
    "small_training", "amp_steps",
    # pytest
    "families", "ending", "selection", "options", "target", "bench_json", "session", "hooks", "plugin",
]
JOIN = ["schedule", "plan", "guard", "progress", "watch", "merge", "campaign"]
READING = [
    "store", "sides", "stats", "differences", "replicates", "pairing", "matching", "verdicts",
    "calibrate", "installations", "contrast", "implementations", "compare", "bridge", "rates", "render",
    "canvas",
    "runtimes", "launch_chart", "charts", "page", "terminal", "calibrate_page",
    "bridge_chart", "bridge_page", "losses",
    "family_data", "dotplot", "conv_charts", "memory_charts", "compile_charts", "gallery",
    "report", "asked",
]
# fmt: on
ORDER = [*BOTH, *MEASURING, *JOIN, *READING, "cli"]

NEVER = {
    "both": {"torch", "cupy", "numba", "pandas", "matplotlib", "duckdb", "scipy", "statsmodels", "pytest"},
    "measuring": {"pandas", "matplotlib", "duckdb", "scipy", "statsmodels"},
    "join": {"torch", "cupy", "numba", "pandas", "matplotlib", "duckdb", "scipy", "statsmodels"},
    "reading": {"torch", "cupy", "numba", "pynvml"},
}


def half(module: str) -> str:
    for name, modules in [("both", BOTH), ("measuring", MEASURING), ("join", JOIN), ("reading", READING)]:
        if module in modules:
            return name
    return "cli"


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


MODULES = sorted(path.stem for path in LIBRARY.glob("*.py") if path.stem != "__init__")


def test_every_module_has_its_place():
    assert set(MODULES) <= set(ORDER), "a new module needs a place in the order above"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    ours = {
        name.split(".")[1]
        for name in imported(LIBRARY / f"{module}.py")
        if name.startswith("bench_lib.") and name.split(".")[1] in ORDER
    }
    later = {name for name in ours if ORDER.index(name) >= ORDER.index(module)}
    assert not later
    if half(module) == "reading":
        assert not ours & {*MEASURING, *JOIN}
    if half(module) in ("measuring", "join"):
        assert not ours & set(READING)
    if half(module) == "join":
        assert not ours & set(MEASURING)


@pytest.mark.parametrize("module", [m for m in MODULES if m != "cli"])
def test_the_halves_stay_apart(module):
    roots = {name.split(".")[0] for name in imported(LIBRARY / f"{module}.py")}
    assert not roots & NEVER[half(module)]


@pytest.mark.parametrize("module", ["bench_lib", "bench_lib.cli", "bench_lib.plugin"])
def test_importing_loads_nothing_heavy(module):
    heavy = {"torch", "cupy", "numba", "pandas", "matplotlib", "scipy", "duckdb"}
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
