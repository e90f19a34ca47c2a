"""The family allocator in real pytest runs, its processes with a pretended torch; and --soak."""

import json
import shutil
from pathlib import Path

import pytest
from plugin_runs import Runs

from bench_lib.campaigns.plan import Plan
from bench_lib.errors import UsageError
from bench_lib.running.options import soak_minutes

TESTS = Path(__file__).parent
CONFTEST = """
import functools, pytest
import fake_allocator
from bench_lib.alloc_traces import children

children.Allocators = functools.partial(children.Allocators, fake_allocator.worker)

@pytest.fixture(scope="session")
def gpu():
    return object()

@pytest.fixture(scope="session")
def torch():
    return object()
"""


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs(pytester, monkeypatch)
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}:{TESTS.parent}")
    shutil.copy(TESTS.parent / "benchmarks" / "bench_allocator.py", made.path)
    (made.path / "conftest.py").write_text(CONFTEST)
    return made


def rows(runs: Runs, op: str) -> dict[tuple[str, str], dict]:
    """Rows of an op by trace (or size) and backend, of the last metric."""
    found = [{**json.loads(row["params"]), **row} for row in runs.table("cases") if row["op"] == op]
    return {(str(row.get("trace", row.get("nbytes"))), row.get("backend", "")): row for row in found}


def test_every_case_and_what_it_stores(runs: Runs):
    done = runs.pytest("--device=cpu", "-k", "adversarial or 2097152 or transfer")
    assert done.ret == 0, done.outlines
    assert set(runs.statuses().values()) == {"ok", "not-applicable"}
    replayed = rows(runs, "replay")
    assert len(replayed) == 3
    heap, pages = (dict(replayed["adversarial", b]["quantities"]) for b in ("native", "expandable_segments"))
    assert heap["fragmentation"] > 10 * pages["fragmentation"] > 0
    assert {(row["metric"], row["margin"]) for row in runs.table("cases") if row["op"] == "replay"} == {
        ("first", 0.10),
        ("again", 0.05),
    }
    limits = rows(runs, "limit")
    assert limits["adversarial", "cudaMallocAsync"]["status"] == "not-applicable"
    assert dict(limits["adversarial", "native"]["quantities"])["needed_peaks"] > 1.1
    assert len(rows(runs, "block")) == 3
    (transfer,) = rows(runs, "transfer").values()
    facts = dict(transfer["facts"])
    assert (facts["allocator.in_effect"], facts["transfer.asked_driver"]) == ("native", "1 of 100 calls")


def test_quick_keeps_one_trace_of_every_backend(runs: Runs):
    done = runs.pytest("--device=cpu", "--quick", "--collect-only", "-q")
    kept = [line for line in done.outlines if "::" in line]
    assert len(kept) == 6
    assert all("bench_replay[transformer-" in line for line in kept)


def test_a_soak_is_asked_for_and_its_minutes_are_part_of_the_case(runs: Runs):
    done = runs.pytest("--device=cpu", "--soak=0.01", "-k", "soak and expandable")
    assert done.ret == 0, done.outlines
    (row,) = runs.table("cases")
    assert row["case_id"] == "allocator/soak[backend=expandable_segments,metric=soak,minutes=0.01]"
    assert row["n_samples"] == 60
    assert {"reserved_growth", "time_growth", "fragmentation"} <= set(dict(row["quantities"]))
    (run,) = runs.table("runs")
    assert "--soak=0.01" in run["command"]


def test_without_soak_no_soak_is_selected_and_a_wrong_one_is_refused(runs: Runs):
    done = runs.pytest("--device=cpu", "--collect-only", "-q")
    done.stdout.no_fnmatch_line("*bench_soak*")
    done = runs.pytest("--device=cpu", "--soak=-1", "--collect-only")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --soak is -1, expected minutes, such as 30"])
    for given in (float("nan"), float("inf")):
        with pytest.raises(UsageError, match="expected minutes, such as 30"):
            soak_minutes(given)
    runs.write("def bench_one(bench):\n    bench.record(Series((1.0,)))\n")
    done = runs.pytest("--device=cpu", "--soak=1", "--family=made")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --soak was given and no selected family has one; select one, as*"])


def test_a_soak_has_its_minutes_on_top_of_the_budget(runs: Runs):
    runs.write(
        "@pytest.mark.soak\n@pytest.mark.budget(7)\n"
        "def bench_long(bench, soak_minutes):\n"
        "    bench.record(Series((bench.budget_seconds, soak_minutes)))\n"
    )
    done = runs.pytest("--device=cpu", "--soak=0.5", "--family=made", "-q")
    assert done.ret == 0, done.outlines
    assert runs.seconds("made/long") == [37.0, 0.5]


def test_a_campaign_passes_the_soak_on(tmp_path: Path):
    plan = Plan("c", tmp_path, ("here",), soak=1.5, benchmarks=TESTS)
    assert " --soak 1.5" in plan.command
    words = plan.arguments("here")
    assert words[words.index("--soak") + 1] == "1.5"
    usual = Plan("c", tmp_path, ("here",), benchmarks=TESTS)
    assert "--soak" not in usual.command
    assert "--soak" not in usual.arguments("here")
    for wrong in (-1.0, float("nan")):
        with pytest.raises(UsageError, match=r"--soak is .*, expected minutes, such as 30"):
            Plan("c", tmp_path, ("here",), soak=wrong, benchmarks=TESTS)
