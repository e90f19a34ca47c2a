"""Imports point one way, and the two halves stay apart; importing anything loads no torch."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "bench_lib"

# Each module may import only modules that stand before it.
# fmt: off
BOTH = [
    "units", "errors", "model", "next_step", "busbw", "layout", "schema", "faults", "faults.seals",
    "faults.whole",
    "faults.output", "faults.secrets", "observing", "observing.settings",
    "processes", "processes.guard", "processes.ended",
    "journaling", "journaling.journal_rows", "journaling.readable", "journaling.journal",
    "stacking", "stacking.families", "stacking.family_code", "journaling.held", "journaling.planned",
    "extras", "suite_files", "stacking.cache", "stacking.variables",
    "containers", "containers.image", "containers.engine",
    "stacking.stacks", "stacking.startup", "stacking.environments", "containers.inside",
    "containers.command", "containers.pins",
    "identity", "identity.elf", "stacking.swaps", "stacking.venvs", "stacking.stock",
    "importing", "importing.found", "importing.documents", "importing.nccl_tests", "importing.nccl_json",
    "importing.nccl_text", "importing.nvbandwidth", "importing.nvbench", "importing.superbench",
    "importing.formats", "importing.writing",
    "screen", "places", "places.address", "places.place", "places.mirror", "places.look",
    "places.reading",
    "places.writing",
]
DOCTOR = [
    "doctor", "doctor.snapshot", "doctor.speaking", "doctor.children",
    "doctor.inside_driver", "doctor.inside_nvml", "doctor.inside_python", "doctor.inside_torch",
    "doctor.host", "doctor.process", "doctor.variables", "doctor.gather",
    "doctor.finding",
    "doctor.driver_checks", "doctor.gpu_checks", "doctor.torch_checks", "doctor.library_checks",
    "doctor.family_checks",
    "doctor.timing_checks", "doctor.machine_checks", "doctor.checks", "doctor.first", "doctor.page",
]
MEASURING = [
    # the device
    "device", "device.c_library", "device.driver_calls", "device.driver", "device.kernels",
    "device.cudart", "device.native", "device.telemetry",
    "thermal", "thermal.wait", "device.gpu_lock", "device.gpu",
    "stack_packages",
    # taking samples
    "timing", "timing.preemption", "timing.timer", "timing.measure", "timing.turns",
    "running", "running.plain", "running.bench", "running.outcomes",
    # what was measured on
    "identity.machine", "identity.libraries", "identity.probe", "identity.promises", "running.preflight",
    # the work of the families
    "launching", "launching.launch", "launching.first_launch",
    "memory", "memory.memory_mode", "memory.residency", "memory.memory_kernels", "memory.managed",
    "memory.migration", "memory.moves", "memory.chains",
    "memory.param_swap", "memory.allocation",
    "convolution", "convolution.precision", "faults.settings", "faults.leftovers", "faults.around",
    "faults.hang", "convolution.tuning",
    "convolution.shapes", "convolution.convolutions", "convolution.cudnn_libraries", "identity.observe",
    "convolution.cudnn",
    "convolution.path_convolution",
    "processes.worker", "ranks", "ranks.member", "ranks.interconnect", "ranks.life", "ranks.seat",
    "ranks.joining",
    "ranks.preflight", "ranks.world", "ranks.group", "ranks.timing",
    "collectives", "collectives.asked", "collectives.pattern", "nccl", "nccl.library", "nccl.graphs",
    "nccl.found", "nccl.log", "collectives.torch_rank", "collectives.native_rank", "collectives.sweep",
    "collectives.choices", "collectives.ladder",
    "convolution.conv_worker", "convolution.kernel_names", "convolution.tuned_workers",
    "compiling", "compiling.compile_preflight", "compiling.compiled_model", "compiling.training",
    "compiling.executions", "compiling.compile_children",
    "convolution.small_training", "convolution.amp_steps",
    "cublas", "cublas.library", "cublas.product",
    "mps", "mps.control", "mps.keeper", "mps.lines", "mps.daemon", "mps.work", "mps.client",
    "mps.clients",
    "mps.sharing",
    "cross_check", "cross_check.works", "cross_check.child", "cross_check.asking",
    "alloc_traces", "alloc_traces.trace", "alloc_traces.record", "alloc_traces.made",
    "alloc_traces.backends", "alloc_traces.memory", "alloc_traces.replay", "alloc_traces.soak",
    "alloc_traces.children",
    "tma", "tma.code", "tma.copy_ptx", "tma.copies", "tma.triton_kernels", "tma.triton_arms",
    "tma.attention", "tma.attention_kernels",
    "exporting", "exporting.networks", "exporting.exporter", "exporting.agreement",
    "overlap", "overlap.copying", "overlap.loading",
    "module_loading", "module_loading.watch", "module_loading.steps", "module_loading.child",
    "module_loading.children",
    *DOCTOR,
    "ranks_steps", "ranks_steps.networks", "ranks_steps.arms", "ranks_steps.trainer",
    "ranks_steps.measuring", "ranks_steps.cases",
    "smoke", "smoke.sharded", "smoke.training", "smoke.checking",
    # pytest
    "observing.ranges",
    "running.ending", "running.selection", "running.options", "running.target", "running.bench_json",
    "running.flight", "running.doubts", "running.session",
    "running.banner", "running.closing", "faults.surroundings",
    "running.misnamed", "running.choice", "running.hooks", "running.fixtures", "plugin",
]
JOIN = [
    "campaigns", "campaigns.schedule", "campaigns.plan", "campaigns.progress", "campaigns.watch",
    "campaigns.process_end",
    "campaigns.merge",
    "campaigns.campaign_rounds", "campaigns.campaign_cooling", "campaigns.campaign_sharing",
    "campaigns.doubted", "campaigns.campaign_containers", "campaigns.campaign",
]
READING = [
    "comparing", "comparing.changes", "comparing.sampled", "comparing.store", "comparing.sides",
    "comparing.stats",
    "comparing.differences", "comparing.loaded",
    "comparing.replicates", "comparing.pairing", "comparing.matching",
    "comparing.verdicts",
    "comparing.kinds", "comparing.case_words", "comparing.machines",
    "comparing.calibrate", "thermal.warm", "observing.notes", "comparing.installations",
    "comparing.contrast", "comparing.implementations",
    "comparing.compare", "comparing.ahead", "comparing.upgrade",
    "comparing.bridge", "comparing.titles", "comparing.rates", "pages", "pages.render",
    "drawing", "drawing.canvas", "drawing.dotplot", "drawing.marks", "drawing.case_names",
    "drawing.runtimes", "drawing.launch_chart", "drawing.charts", "drawing.forest_chart",
    "pages.page", "pages.terminal", "pages.calibrate_page",
    "drawing.bridge_chart", "pages.bridge_page", "pages.destination",
    "drawing.family_data", "drawing.conv_charts", "drawing.memory_charts",
    "drawing.compile_charts",
    "drawing.cross_check_chart",
    "allreduce_charts", "allreduce_charts.curves", "allreduce_charts.drawing",
    "tma_charts", "tma_charts.panel", "tma_charts.tiles", "tma_charts.attention",
    "process_charts", "process_charts.sharing", "process_charts.once",
    "system_charts", "system_charts.allocator", "system_charts.overlap", "drawing.gallery",
    "pages.asked",
    "claims", "claims.words", "claims.bounds", "claims.values", "claims.single", "claims.average",
    "claims.judging", "claims.derived", "claims.grids", "claims.selecting", "claims.measured",
    "claims.findings", "claims.combining",
    "claims.entry", "claims.checks", "claims.reading", "claims.functions", "claims.known",
    "claims.names",
    "claims.judged", "claims.pages",
    "sections", "sections.losses", "sections.metrics", "sections.cases", "sections.families",
    "sections.kernels", "sections.working", "sections.extremes", "sections.brief", "sections.answer",
    "sections.claims", "sections.claimed",
    "html", "html.svg", "html.writer", "pages.report",
    "html.asking",
    "pages.inventory", "pages.cells",
    "html.shipped", "formats", "formats.openmetrics", "formats.junit", "formats.showing",
]
# fmt: on
COMMANDS = [
    "commands",
    "commands.words",
    "commands.measuring",
    "commands.importing",
    "commands.reading",
    "commands.reporting",
    "commands.stacks",
    "commands.claiming",
    "commands.examining",
    "cli",
]
ORDER = [*BOTH, *MEASURING, *JOIN, *READING, *COMMANDS]

NEVER = {
    "both": {"torch", "cupy", "numba", "pandas", "matplotlib", "duckdb", "scipy", "statsmodels", "pytest"},
    "doctor": {"torch", "cupy", "numba", "pynvml", "pandas", "matplotlib", "duckdb", "scipy", "pytest"},
    "measuring": {"pandas", "matplotlib", "duckdb", "scipy", "statsmodels"},
    "join": {"torch", "cupy", "numba", "pandas", "matplotlib", "duckdb", "scipy", "statsmodels"},
    "reading": {"torch", "cupy", "numba", "pynvml"},
}


def half(module: str) -> str:
    halves = {"both": BOTH, "doctor": DOCTOR, "measuring": MEASURING, "join": JOIN, "reading": READING}
    for name, modules in halves.items():
        if module in modules:
            return name
    return "commands"


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def name(path: Path) -> str:
    """How a module is called below bench_lib: "units", "commands.words"; a package by its folder."""
    return ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__")


FILES = {name(path): path for path in sorted(LIBRARY.rglob("*.py")) if path != LIBRARY / "__init__.py"}
MODULES = list(FILES)


def test_every_module_has_its_place():
    assert set(MODULES) <= set(ORDER), "a new module needs a place in the order above"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    names = {name.removeprefix("bench_lib.") for name in imported(FILES[module])}
    ours = {known for known in ORDER if any(n == known or n.startswith(f"{known}.") for n in names)}
    ours -= {package for package in ours if any(one.startswith(f"{package}.") for one in ours)}
    later = {name for name in ours if ORDER.index(name) >= ORDER.index(module)}
    assert not later
    if half(module) == "reading":
        assert not ours & {*MEASURING, *JOIN}
    if half(module) in ("doctor", "measuring", "join"):
        assert not ours & set(READING)
    if half(module) == "join":
        assert not ours & set(MEASURING)


@pytest.mark.parametrize("module", [m for m in MODULES if m not in COMMANDS])
def test_the_halves_stay_apart(module):
    roots = {name.split(".")[0] for name in imported(FILES[module])}
    assert not roots & NEVER[half(module)]


def defined(tree: ast.Module) -> Iterator[str]:
    """What a module defines or imports at its top."""
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        else:
            yield from (one.id for one in ast.walk(node) if isinstance(one, ast.Name))


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.py")), ids=lambda path: name(path) or "bench_lib")
def test_names_are_public_by_their_spelling(path):
    """`__all__` is sorted and holds what is there; no module takes a private name of another one."""
    tree = ast.parse(path.read_text())
    listed = re.search(r"^__all__ = (\[[^]]*\])", path.read_text(), re.MULTILINE)
    exported = ast.literal_eval(listed[1]) if listed else []
    assert exported == sorted(exported)
    assert set(exported) <= set(defined(tree))
    taken = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    private = [alias.name for node in taken for alias in node.names if alias.name.startswith("_")]
    assert set(private) <= {"__version__"}


@pytest.mark.parametrize("module", ["bench_lib", "bench_lib.cli", "bench_lib.plugin"])
def test_importing_loads_nothing_heavy(module):
    heavy = {"torch", "cupy", "numba", "pandas", "matplotlib", "scipy", "duckdb"}
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {heavy!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
