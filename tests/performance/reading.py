"""What reading costs: `compare` beside DuckDB's own query of the same files, the command, the reports."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import synthetic

from bench_lib.layout import TABLES, CampaignFolder
from bench_lib.model import Case
from bench_lib.pages import asked
from performance.figures import Figure, Part, in_seconds, megabytes, seconds, times

CASES, RUNS, SAMPLES = 200, 20, 100
REPEATS = 9
GROWTH_REPEATS = 5
NAME, SIDES = "big", ("old", "new")

# A child's resource usage counts its parent's memory too, from before it was another program.
COMMAND = """
from bench_lib.cli import main
try:
    main()
finally:
    import re, sys
    sys.stderr.write(re.search("VmHWM: *(\\d+)", open("/proc/self/status").read().replace("\\t", ""))[1])
"""


def part(results: Path) -> Part:
    """The figures of this page; `results` holds the shipped campaigns."""
    with tempfile.TemporaryDirectory() as made:
        small, large = Path(made) / "small", Path(made) / "large"
        write(small)
        multiply(small, large, 10)
        beside = [(seconds(lambda: query(small)), seconds(lambda: compared(small))) for _ in range(REPEATS)]
        once = min(ours for _, ours in beside)
        growth = median(_cpu_seconds(large) / _cpu_seconds(small) for _ in range(GROWTH_REPEATS))
        wall, memory = command("compare", *SIDES, "--campaign", NAME, "--results", str(small))
        reports, _ = command("report", "--all", "--results", str(results), "-o", str(Path(made) / "report"))
    return Part(
        "Reading",
        f"A made-up campaign of 2 stacks, {CASES} cases, {RUNS} runs each and {SAMPLES} samples, one file a "
        "table and run. DuckDB's query is the median of every run and case over the samples files alone; "
        "`compare` reads the other two tables as well, checks every page of every file, and judges every "
        f"case. The first ratio is the median of {REPEATS}, both taken in turns in one process, the "
        f"second of {GROWTH_REPEATS}. Ten times the rows are ten times the runs, in ten times the files.",
        (
            Figure("`compare`, of DuckDB's query", median(ours / its for its, ours in beside), 5, times),
            Figure("ten times the rows, of the CPU time", growth, 10, times),
            Figure("the whole command `compare`", wall, 4, in_seconds),
            Figure("its memory", memory, 600e6, megabytes),
            Figure("all reports of the shipped campaigns", reports, 20, in_seconds),
            Figure("`cuda-gains --help`, of `import numpy`", help_beside_numpy(), 2.5, times),
        ),
        (
            f"The least of {REPEATS}: DuckDB's query {1e3 * min(its for its, _ in beside):.0f} ms, `compare` "
            f"{1e3 * once:.0f} ms.",
        ),
    )


def write(results: Path) -> None:
    """The campaign that is read."""
    cases = [Case("launch", "op", {"size": size}) for size in range(CASES - 2)]
    measured = [
        *synthetic.canaries(),
        *(synthetic.SyntheticCase(case, (100 + i) * 1e-6) for i, case in enumerate(cases)),
    ]
    stacks = dict(zip(SIDES, (1.0, 0.97), strict=True))
    synthetic.write_campaign(
        results, NAME, stacks, rounds=RUNS, measured=measured, samples=SAMPLES, null=False
    )


def multiply(source: Path, target: Path, copies: int) -> None:
    """The campaign with each run and round so many times, under other ids."""
    for table in TABLES:
        for path in CampaignFolder(source, NAME).parquet_files(table):
            data = pq.read_table(path)
            for number in range(copies):
                copy = CampaignFolder(target, NAME).table(table, f"{path.stem}-{number}")
                copy.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(_renamed(data, number), copy, compression="zstd", write_page_checksum=True)


def _renamed(data: pa.Table, number: int) -> pa.Table:
    for name in ("run_id", "round"):
        words = pa.array([f"{word}-{number}" for word in data[name].to_pylist()])
        place, kind = data.column_names.index(name), data.schema.field(name).type
        data = data.set_column(place, name, words.cast(kind))
    return data


def query(results: Path) -> None:
    """DuckDB's own median of every run and case."""
    files = results / NAME / "samples" / "*.parquet"
    with duckdb.connect() as connection:
        connection.sql(f"SELECT run_id, case_id, median(seconds) FROM '{files}' GROUP BY ALL").fetchall()


def compared(results: Path) -> None:
    """The comparison, without its printing."""
    asked.compared(SIDES, NAME, results, None)


def _cpu_seconds(results: Path) -> float:
    begin = time.process_time()
    compared(results)
    return time.process_time() - begin


def command(*arguments: str) -> tuple[float, float]:
    """Wall seconds and the most bytes of memory of a `cuda-gains` command."""
    told = [_run(COMMAND, *arguments) for _ in range(2)]
    return min(wall for wall, _ in told), max(1024.0 * int(said) for _, said in told)


def help_beside_numpy() -> float:
    """The time of `--help` over that of importing numpy, each a new process; the median of some turns."""
    turns = [(_run(COMMAND, "--help")[0], _run("import numpy")[0]) for _ in range(REPEATS)]
    return median(ours / numpy for ours, numpy in turns)


def _run(code: str, *arguments: str) -> tuple[float, str]:
    """Wall seconds of a Python process, and the last line on its stderr."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wall = time.perf_counter() - begin
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return wall, (done.stderr.splitlines() or [""])[-1]
