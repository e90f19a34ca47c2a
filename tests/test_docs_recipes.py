"""The recipes of docs/ work as they stand there: family, claim, stack and timer; and the timers' numbers."""

import re
from pathlib import Path

from plugin_runs import Runs

from bench_lib.claims import judged
from bench_lib.model import DEFAULT_POLICY, QUICK_POLICY
from bench_lib.stacking import stacks
from bench_lib.timing.timer import MAX_QUEUED_CALLS

ROOT = Path(__file__).parents[1]


def recipe(page: str, title: str, language: str) -> str:
    section = (ROOT / "docs" / page).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    (code,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return code


def test_the_family_and_the_timer(runs: Runs):
    (runs.path / "pytest.ini").unlink()  # a folder of one's own has none
    runs.write(recipe("README.md", "Add a family", "python"), "bench_sums", head="")
    runs.write(recipe("timers.md", "Add a timer", "python"), "bench_sorts", head="")
    assert runs.pytest("--quick", "--family", "sums", "--device", "cpu").ret == 0
    done = runs.pytest("--family", "sums", "--family", "sorts", "--device", "cpu")
    assert done.parseoutcomes()["passed"] == 2
    assert set(runs.statuses().values()) == {"ok"}
    assert set(runs.statuses()) == {"sums/sum[n=1000000]", "sorts/sort"}
    (runs.path / "deeper").mkdir()  # with a fixture that the suite's own files ask for
    runs.write("def bench_add(bench, cupy):\n    pass\n", "deeper/bench_arrays", head="")
    assert runs.pytest("--family", "arrays", "--device", "cpu").parseoutcomes()["skipped"] == 1


def test_the_claim_is_read_and_judged(tmp_path):
    (tmp_path / "mine.toml").write_text(recipe("README.md", "Add a claim", "toml"))
    (one,) = judged.judged(ROOT / "results", ["h200-cudart-rounds"], tmp_path / "mine.toml")
    assert one.verdict == "supported"
    assert [each.n_cases for each in one.findings] == [1]


def test_the_stack_is_read(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[here]\nkind = "here"\n' + recipe("README.md", "Add a stack", "toml")
    )
    entry = stacks.load_stacks(tmp_path / "mine.toml")["here-nccl-2.27"]
    assert (entry.kind, entry.library) == ("swap", "nccl")


def test_the_numbers_of_the_timers():
    page = " ".join((ROOT / "docs/timers.md").read_text().split())
    default, quick = DEFAULT_POLICY, QUICK_POLICY
    warm = f"({default.warmup_seconds:g} s at least, {default.max_warmup_seconds:g} s at most; "
    assert f"{warm}`--quick` {quick.warmup_seconds:g} and {quick.max_warmup_seconds:g} s)" in page
    samples = f"up to {default.samples} samples in {default.budget_seconds:g} s "
    assert f"{samples}(`--quick` {quick.samples} in {quick.budget_seconds:g} s), five at least" in page
    assert default.min_samples == quick.min_samples == 5
    assert f"At most {MAX_QUEUED_CALLS} calls are queued" in page
