"""What a case hands to `bench`: kept as given where it fits, and that case's failure where it does not."""

import dataclasses

import pytest
from plugin_runs import Runs

from bench_lib.bench import Bench, Conditions
from bench_lib.model import QUICK_POLICY, Case
from bench_lib.telemetry import Telemetry

SEVEN = dataclasses.replace(QUICK_POLICY, samples=7, warmup_seconds=0.0, max_warmup_seconds=0.0)


def no_gpu() -> None:
    return None


@pytest.fixture
def bench() -> Bench:
    conditions = Conditions("cpu", QUICK_POLICY, Telemetry(), no_gpu, no_gpu)  # type: ignore[arg-type]
    return Bench(Case("made", "it"), 60.0, conditions)


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(pytester, monkeypatch)


def test_a_case_has_its_own_policy(bench: Bench):
    bench(lambda: None, timing="host", policy=SEVEN)
    assert len(bench.finished().seconds) == 7


def test_a_native_case_has_its_own_policy(bench: Bench):
    bench.native(lambda: 1.0, policy=SEVEN)
    assert len(bench.finished().seconds) == 7
