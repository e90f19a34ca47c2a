"""nvbench beside this suite on a real GPU: both see the same spin, and everything ends well."""

import os
import statistics
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from plugin_runs import run_pytest

from bench_lib.cross_check import asking
from bench_lib.errors import Unavailable

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.gpu


def test_two_rulers_agree_on_a_spin(tmp_path, capsys):
    try:
        asking.require()
    except Unavailable as error:
        pytest.skip(str(error))
    asked = ("benchmarks", "--family", "cross_check", "--require-gpu", "--results", tmp_path)
    code, output = run_pytest(*asked, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert code == 0, output
    seconds: dict[str, list[float]] = {}
    for row in pq.read_table(next((tmp_path / "local/samples").glob("*.parquet"))).to_pylist():
        seconds.setdefault(row["case_id"].removeprefix("cross_check/"), []).append(row["seconds"])
    median = {case: statistics.median(values) for case, values in seconds.items()}
    with capsys.disabled():
        for case, value in sorted(median.items()):
            print(f"\n{case}: {value * 1e6:.3f} us", end="")
    for metric in ("cold", "batch"):
        ours, theirs = (median[f"spin[metric={metric},tool={tool}]"] for tool in ("ours", "nvbench"))
        assert theirs / ours == pytest.approx(1, abs=0.03), metric
