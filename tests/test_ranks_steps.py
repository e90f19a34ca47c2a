"""Training steps over two gloo ranks: what is measured of each strategy, and wrong ones are found."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from plugin_runs import run_pytest

from bench_lib.convolution.precision import Precision
from bench_lib.errors import Unavailable, WrongResult
from bench_lib.model import Policy, Series
from bench_lib.ranks.group import Ranks
from bench_lib.ranks.world import World
from bench_lib.ranks_steps import arms, cases, measuring, trainer
from bench_lib.ranks_steps.networks import SMALL, Setup

ROOT = Path(__file__).parents[1]
POLICY = Policy("test", samples=3, budget_seconds=1.0, min_samples=3, max_warmup_seconds=0.0)
SETUP = Setup(SMALL, 4, Precision.FP32)


def measured(make, strategies):
    with Ranks(World(), make, SETUP, size=2, backend="gloo") as ranks:
        return measuring.measure(ranks, SETUP, strategies, POLICY)


def test_every_strategy_of_ddp_is_measured_and_its_ranks_agree():
    found = measured(trainer.make, arms.DDP_STRATEGIES)

    assert set(found) == {key for one in arms.DDP_STRATEGIES for key in measuring.metrics(one)}
    assert all(isinstance(one, Series) for one in found.values()), found
    assert {(len(one.seconds), one.calls, one.turns) for one in found.values()} == {(3, 2, "small-4-fp32")}
    step = found["buckets", "step"]
    assert step.quantities["gradient_relative_error"] < 1e-4
    assert 0 < found["fp16-hook", "step"].quantities["gradient_relative_error"] < 0.01  # it rounds
    alone = found["buckets", "communication"].seconds
    assert step.quantities["communication_seconds"] == sorted(alone)[1]
    assert "exposed_seconds" in found["no-sync", "step"].quantities
    assert found["none", "step"].quantities == {}
    assert found["buckets", "communication"].work.nbytes == 4 * 29568


def spoiled(member, setup):
    """Ranks on which one strategy cannot be, one does nothing, and the weights of one drift apart."""
    handler, parallel = trainer.make(member, setup), member.torch.nn.parallel
    whole = parallel.DistributedDataParallel

    def answer(request):
        if request == trainer.Build("fp16-hook"):
            raise Unavailable("no hook here")
        if request == trainer.Weights("no-sync") and member.rank == 1:
            return "other bits"
        lonely = request == trainer.Build("one-bucket")
        parallel.DistributedDataParallel = (lambda model, **_: model) if lonely else whole
        return handler(request)

    return answer


def test_what_is_wrong_with_one_strategy_is_told_and_leaves_the_others():
    found = measured(spoiled, arms.DDP_STRATEGIES)

    assert isinstance(found["fp16-hook", "step"], Unavailable)
    for metric in ("step", "communication"):
        assert isinstance(found["buckets", metric], Series)
        assert isinstance(found["one-bucket", metric], WrongResult)
        assert "from the mean over the ranks" in str(found["one-bucket", metric])
        assert isinstance(found["no-sync", metric], WrongResult)
    told = str(found["no-sync", "step"])
    assert told == "after the steps of no-sync the weights of rank 1 are not those of rank 0"


class NoWorld(World):
    """A machine on which no rank can be started."""

    def lock(self, facts):
        raise Unavailable("another run has the GPU")


def test_without_ranks_every_case_tells_why_and_nothing_is_tried_twice():
    found = cases.measure(NoWorld("1"), "cpu", SETUP, ["none", "buckets"], POLICY, 0)

    assert (found.ranks, found.interconnect) == (1, "")
    assert {str(one) for one in found.outcomes.values()} == {"another run has the GPU"}
    assert {type(one) for one in found.outcomes.values()} == {Unavailable}


def test_fsdp_step_as_it_is_run(tmp_path):
    options = ["--device", "cpu", "--quick", "--results", tmp_path, "-q"]
    code, output = run_pytest("benchmarks", "--family", "fsdp_step", *options)

    assert code == 0, output
    (path,) = (tmp_path / "local" / "cases").glob("*.parquet")
    rows = {json.loads(row["params"])["strategy"]: row for row in pq.read_table(path).to_pylist()}
    assert {one["status"] for one in rows.values()} == {"ok"}, [one["reason"] for one in rows.values()]
    assert set(rows) == {"none", "fully-shard"}
    params = json.loads(rows["fully-shard"]["params"])
    assert (params["ranks"], params["interconnect"], params["precision"]) == (2, "host", "bf16")
    assert rows["fully-shard"]["world_size"] == 2
    assert rows["fully-shard"]["margin"] == 0.02
    assert rows["fully-shard"]["turns"] == rows["none"]["turns"] != ""


def test_what_of_the_communication_is_exposed():
    step, without, alone = (
        Series(seconds) for seconds in ((0.5, 0.6, 0.4), (0.4, 0.4, 0.4), (0.2, 0.5, 0.4))
    )

    found = measuring.exposed(step, without, alone)
    assert found == pytest.approx(
        {"exposed_seconds": 0.1, "communication_seconds": 0.4, "overlap_share": 0.75}
    )


def test_buckets_fill_from_the_last_parameter_and_the_first_one_is_small():
    sizes = [10, 20, 30, 40]  # elements of four bytes

    assert list(arms.buckets(sizes, (100, 200))) == [40, 50, 10]
    assert list(arms.buckets(sizes, (400, 400))) == [100]


@pytest.mark.parametrize(
    ("precision", "strategy", "allowed"),
    [("fp32", "buckets", 1e-4), ("fp32", "fp16-hook", 0.01), ("bf16-autocast", "fp16-hook", 0.1)],
)
def test_how_far_a_gradient_may_be_off(precision, strategy, allowed):
    assert measuring.tolerance(Precision(precision), strategy) == allowed
