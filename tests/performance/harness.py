"""What measuring itself costs on the CPU: the native loop a call, the harness a case and a sample."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench_lib.device import native
from bench_lib.model import Policy
from bench_lib.timing.measure import measure
from bench_lib.timing.timer import Host
from performance.figures import Figure, Part, microseconds, milliseconds, nanoseconds, percent, seconds

MANY, SAMPLES, REPEATS = 200, 20_000, 3
PLUGINS = "pytest_benchmark.plugin,bench_lib.plugin"
CALL_SECONDS = 0.030
INI = "[pytest]\npython_files = bench_*.py\npython_functions = bench_*\naddopts = --strict-markers\n"
WATCHED = """
import time
import pytest
def lasting(name):
    begin = time.perf_counter()
    try:
        return (yield)
    finally:
        with open(name, "a") as file:
            file.write(f"{time.perf_counter() - begin}\\n")
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    return (yield from lasting("cases"))
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    return (yield from lasting("finish"))
"""
RECORDED = """
import pytest
from bench_lib.model import Series
FAMILY, MARGIN = "made", 0.05
@pytest.mark.parametrize("number", range({cases}))
def bench_case(bench, number):
    bench.record(Series((1e-3, 1e-3)))
"""
CALLED = """
import time
FAMILY, MARGIN = "made", 0.05
spent = 0.0
def call():
    global spent
    begin = time.perf_counter()
    while time.perf_counter() - begin < {call_seconds}:
        pass
    spent += time.perf_counter() - begin
def bench_case(bench):
    begin = time.perf_counter()
    bench(call, timing="host")
    open("inside", "w").write(repr(spent))
"""


def part() -> Part:
    """The figures of this page."""
    return Part(
        "Measuring",
        "The native loop makes calls of C functions without Python between them; its own cost is taken on "
        "libc's `abs(0)`, which returns at once, and is an upper bound, since the call is in it. What the "
        f"harness adds to a case is the median over {MANY} cases that measure nothing, all that pytest does "
        "for each included: journal lines with fsync, clocks, pytest-benchmark's row; and its share of the "
        "run's end, which writes Parquet. What it adds to a sample is a host-timed call of nothing. (A "
        "sample on a cold L2 has the flush besides; no GPU was used here.)",
        (
            Figure("native launch loop, a call", native.overhead(), 10e-9, nanoseconds),
            Figure("harness, a case", a_case(), 30e-3, milliseconds),
            Figure("harness, a sample", a_sample(), 30e-6, microseconds),
            Figure("harness, of a case of 30 ms calls", of_a_case(), 0.05, percent),
        ),
    )


def a_case() -> float:
    """Seconds that the harness adds a case."""
    with tempfile.TemporaryDirectory() as folder:
        cases, finish = _session(RECORDED.format(cases=MANY), Path(folder))
    return median(cases) + finish / MANY


def a_sample() -> float:
    """Seconds a sample that the harness adds around calls of a function that does nothing."""
    policy = Policy("self", SAMPLES, 60.0, warmup_seconds=0.0, max_warmup_seconds=0.0)
    return min(seconds(lambda: measure(_nothing, Host(1), policy)) for _ in range(REPEATS)) / SAMPLES


def of_a_case() -> float:
    """The share of a whole case that is not in its calls of 30 ms; the least of some."""
    return min(_not_inside() for _ in range(REPEATS))


def _not_inside() -> float:
    with tempfile.TemporaryDirectory() as folder:
        (whole,), _ = _session(CALLED.format(call_seconds=CALL_SECONDS), Path(folder))
        inside = float((Path(folder) / "inside").read_text())
    return (whole - inside) / inside


def _nothing() -> None:
    pass


def _session(source: str, folder: Path) -> tuple[list[float], float]:
    """A pytest session over one benchmark file: the seconds of each case, and of the run's end."""
    for name, text in (("bench_made.py", source), ("conftest.py", WATCHED), ("pytest.ini", INI)):
        (folder / name).write_text(text)
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGINS}
    command = [sys.executable, "-m", "pytest", "-q", "--device", "cpu"]
    subprocess.run(command, cwd=folder, env={**os.environ, **plugins}, check=True, capture_output=True)
    cases, finish = ([float(x) for x in (folder / of).read_text().split()] for of in ("cases", "finish"))
    return cases, finish[0]
