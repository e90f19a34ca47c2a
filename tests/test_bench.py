"""What a case hands to `bench`: kept as given where it fits, and that case's failure where it does not."""

import dataclasses
import json
import pickle

import numpy as np
import pytest
from plugin_runs import Runs

from bench_lib.device.telemetry import Telemetry
from bench_lib.errors import UsageError, WrongResult
from bench_lib.model import QUICK_POLICY, Case, Series, Work
from bench_lib.running.bench import Bench, Conditions

SEVEN = dataclasses.replace(QUICK_POLICY, samples=7, warmup_seconds=0.0, max_warmup_seconds=0.0)


def no_gpu() -> None:
    return None


@pytest.fixture
def bench() -> Bench:
    conditions = Conditions("cpu", QUICK_POLICY, Telemetry(), no_gpu, no_gpu)  # type: ignore[arg-type]
    return Bench(Case("made", "it"), 60.0, conditions)


def test_a_case_has_its_own_policy(bench: Bench):
    bench(lambda: None, timing="host", policy=SEVEN)
    assert len(bench.finished().seconds) == 7


def test_a_native_case_has_its_own_policy(bench: Bench):
    bench.native(lambda: 1.0, policy=SEVEN)
    assert len(bench.finished().seconds) == 7


def test_numbers_of_other_packages_become_plain_ones(bench: Bench):
    bench.parameter("x", np.float32(0.5))
    bench.quantity("peak_nbytes", np.int64(3))
    seconds = np.array([1.0, 2.0], dtype=np.float32)
    bench.record(Series(seconds, calls=np.int64(4), work=Work(np.prod([2, 3]), np.float32(8))))  # type: ignore[arg-type]
    kept = bench.finished()
    assert (kept.seconds, kept.calls, kept.work) == ((1.0, 2.0), 4, Work(6.0, 8.0))
    json.dumps([dataclasses.asdict(kept), bench.case.params_json])
    assert pickle.dumps(kept).find(b"numpy") < 0


def test_numbers_of_other_packages_describe_what_is_timed(bench: Bench):
    bench.native(lambda: np.float32(1.0), calls=np.int64(4), flop=np.prod([2, 3]), policy=SEVEN)  # type: ignore[arg-type,return-value]
    assert pickle.dumps(bench.finished()).find(b"numpy") < 0


def test_text_is_made_text(bench: Bench):
    bench.warn(3)  # type: ignore[arg-type]
    bench.fact("algorithm", 4)  # type: ignore[arg-type]
    bench.fact("odd", "a\ud800")
    bench.record(Series((1.0,), turns=3, facts={"a": 3}, warnings="one"))  # type: ignore[arg-type]
    kept = bench.finished()
    assert (kept.turns, kept.warnings) == ("3", ("one", "3"))
    assert kept.facts == {"a": "3", "algorithm": "4", "odd": "a?"}


WRONG = {
    "calls is 0;": lambda b: b.record(Series((1.0,), calls=0)),
    "calls is 2147483648;": lambda b: b.native(lambda: 1.0, calls=2**31),
    "calls is -1;": lambda b: b(lambda: None, timing="host", calls=-1),
    "calls is 1.5;": lambda b: b(lambda: None, timing="host", calls=1.5),
    "flop is 'many'": lambda b: b(lambda: None, timing="host", flop="many"),
    "a sample is None": lambda b: b.record(Series((None,))),
    "list is no series": lambda b: b.record([1.0]),
    "'hot' is not a valid Timing": lambda b: b.record(Series((1.0,), timing="hot")),
    "quantity 'x' is 'y'": lambda b: b.quantity("x", "y"),
    "quantity 'x' is .1, 2.": lambda b: b.record(Series((1.0,), quantities={"x": [1, 2]})),
    "parameter 'x' is array": lambda b: b.parameter("x", np.zeros(2)),
    "parameter 'x' is nan": lambda b: b.parameter("x", np.float32("nan")),
    "quantity 'x' is array.* \\(ndarray\\);": lambda b: b.quantity("x", np.ones((64, 64))),
    "facts are a list; expected a dict": lambda b: b.facts(["x"]),
    "fn is .*4096.0.* expected a function": lambda b: b(np.ones(4096).sum(), timing="host"),
    "check is .*4096.0.* expected a function": lambda b: b(list, timing="host", check=np.ones(4096).sum()),
    "synchronize is 3 .int.;": lambda b: b(list, timing="host", synchronize=3),
    "loop is 3 .int.; expected a function": lambda b: b.native(3),
    "loop returned a NoneType; expected seconds per call": lambda b: b.native(lambda: None),
    "loop returned a ndarray; expected seconds per call": lambda b: b.native(lambda: np.ones(3)),
    "quantity named 'seconds'": lambda b: b.quantity("seconds", 1),
    "named 'seconds' would": lambda b: b.record(Series((1.0,), quantities={"seconds": 1})),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_cannot_be_kept_is_refused_in_the_case(bench: Bench, sentence):
    with pytest.raises(UsageError, match=sentence):
        WRONG[sentence](bench)


@pytest.mark.parametrize("refusal", [False, np.False_])
def test_a_check_that_returns_false_refuses_the_result(bench: Bench, refusal):
    with pytest.raises(WrongResult, match="the check of the result returned False"):
        bench(lambda: 3, timing="host", check=lambda _: refusal)


UNTELLABLE = """
class Untellable(Exception):
    def __str__(self):
        raise ValueError("never")

def bench_a(bench):
    raise Untellable

@pytest.fixture
def spoiled(bench):
    yield bench
    bench.series = 3

def bench_b(spoiled):
    spoiled.record(Series((1.0,)))

def bench_c(bench):
    bench.record(Series((1.0,), calls=2**40))

def bench_d(bench):
    raise AssertionError("\\ud800")

def bench_e(bench):
    bench.record(Series((1.0,)))
"""


def test_a_case_that_cannot_be_kept_has_failed_and_the_next_one_runs(runs: Runs):
    runs.write(UNTELLABLE)
    done = runs.pytest("--benchmark-json=run.json")
    assert done.ret == 1
    assert "INTERNALERROR" not in done.stdout.str() + done.stderr.str()
    assert runs.statuses() == {f"made/{op}": "ok" if op == "e" else "failed" for op in "abcde"}
    reasons = {row["op"]: row["reason"] for row in runs.table("cases")}
    assert "its text cannot be told" in reasons["a"]
    assert reasons["b"].startswith("its results cannot be kept")
    assert [row["name"] for row in runs.json()["benchmarks"]] == ["bench_e"]
    assert (runs.table("runs")[0]["complete"], runs.table("runs")[0]["exit_code"]) == (True, 1)


def test_only_a_case_that_passed_makes_the_session_fail_when_it_cannot_be_kept(runs: Runs):
    runs.write(
        UNTELLABLE.partition("def bench_c")[0].replace("raise Untellable", "bench.record(Series((1.0,)))")
    )
    assert runs.pytest().ret == 1
    assert runs.statuses() == {"made/a": "ok", "made/b": "failed"}


def test_a_case_of_a_campaign_that_ends_pytest_is_not_tried_again(runs: Runs, monkeypatch):
    runs.write("def bench_a(bench):\n    pytest.exit('enough')\n")
    (runs.path / "task.json").write_text('{"run_id": "abc", "round": "r"}')
    monkeypatch.setenv("CUDA_GAINS_TASK", str(runs.path / "task.json"))
    assert runs.pytest().ret == 2
    assert runs.statuses() == {"made/a": "failed"}
