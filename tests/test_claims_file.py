"""benchmarks/claims.toml: every published claim is there, selects what exists, and has its verdict."""

import json
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path

import fake_cuda
import numpy as np
import pytest
import synthetic
from plugin_runs import run_pytest
from synthetic import Machine, SyntheticCase

from bench_lib.claims import judged, reading
from bench_lib.claims.derived import DERIVED
from bench_lib.claims.functions import of_families
from bench_lib.claims.selecting import selected, values_of
from bench_lib.claims.words import Effect, Kind, Verdict
from bench_lib.comparing import store
from bench_lib.comparing.replicates import SECONDS, params_of
from bench_lib.model import Case, Work
from bench_lib.stacking import families

ROOT = Path(__file__).parents[1]
FILE = ROOT / "benchmarks" / "claims.toml"
RESULTS = ROOT / "results"
SHIPPED = ["h200-convolutions", "h200-cudart-ladder", "h200-cudart-rounds"]
READ = reading.read(FILE)
FAMILIES = set(families.declared(ROOT / "benchmarks").values())
MEASURABLE = [claim for claim in READ.claims if claim.kind is not Kind.FACT]


def test_every_published_claim_is_there_once():
    known = (ROOT / "tests" / "claim_ids.txt").read_text().split()
    assert len(known) == 124
    assert sorted(claim.id for claim in READ.claims) == known


def test_every_claim_names_its_article_and_its_figure():
    titles = {claim.source for claim in READ.claims}
    assert len(titles) == 3
    assert all("CUDA" in title and len(title) > 20 for title in titles)
    assert all(claim.figure and claim.text for claim in READ.claims)


def test_what_can_only_be_cited_says_what_was_found():
    for claim in READ.claims:
        assert claim.record_says == "open" or claim.record, claim.id


def test_a_planned_family_is_not_there_yet_and_is_asked_for():
    assert not set(READ.planned) & FAMILIES, "take a family that is there now from `planned`"
    assert set(READ.planned) <= {family for claim in MEASURABLE for family in claim.families}


@pytest.fixture(scope="session")
def existing(fake_cuda_built, tmp_path_factory):
    """Family, op and parameters of every case: collected on a (pretended) GPU, and of shipped campaigns.

    What depends on the libraries at hand (runtimes of the ladders) is known from shipped campaigns alone.
    """
    folder = tmp_path_factory.mktemp("collected")
    (folder / "locks").mkdir()
    environment = {**os.environ, **fake_cuda.environment(fake_cuda_built, folder)}
    environment |= {"COLLECTED_CASES": str(folder / "cases.json"), "PYTHONPATH": str(ROOT / "tests")}
    families = [f"--family={name}" for name in sorted(FAMILIES)]  # those too that want to be named
    asked = ("benchmarks", "--collect-only", "-q", "--full", *families, "-p", "collected_cases")
    code, output = run_pytest(*asked, env=environment)
    assert code == 0, output
    cases = {tuple(case) for case in json.loads((folder / "cases.json").read_text())}
    shipped = store.load(RESULTS, SHIPPED).cases[["family", "op", "params"]]
    return cases | set(shipped.itertuples(index=False, name=None))


def test_every_claim_selects_an_existing_case(existing):
    """A scope that selects nothing would be `not measured` for ever, whatever is measured."""
    for claim in MEASURABLE:
        for scope in claim.cases:
            if scope.family in READ.planned:
                continue
            assert scope.family in FAMILIES, f"{claim.id}: no file measures {scope.family!r}"
            alone = replace(claim, cases=(scope,))
            parameters = {contrast.parameter for contrast in claim.contrasts} or {""}
            assert any(
                selected(alone, family, op, params_of(params), parameter)
                for family, op, params in existing
                for parameter in parameters
            ), f"{claim.id}: {scope} selects no case"


def test_what_is_read_of_benchmark_files_holds_every_case(existing):
    """No op or parameter of a real case may be taken for a mistake."""
    names = of_families([ROOT / "benchmarks"])
    for family, op, params in existing:
        assert op in names[family].ops, (family, op)
        assert set(params_of(params)) <= names[family].parameters, (family, op, params)


AT_HAND = ("runtime", "nccl")  # what they can be depends on the libraries at hand


def test_every_contrast_is_between_values_that_exist(existing):
    for claim in MEASURABLE:
        if set(claim.families) <= set(READ.planned):
            continue
        for contrast in claim.contrasts:
            there = values_of(existing, claim, contrast.parameter)
            assert there, f"{claim.id}: no selected case has {contrast.parameter!r}"
            if contrast.parameter not in AT_HAND:
                assert {contrast.baseline, contrast.candidate} <= there, f"{claim.id}: {there}"


def test_a_group_is_a_parameter_of_the_selected_cases(existing):
    for claim in MEASURABLE:
        own = [
            {"family", "op", *params_of(params)}
            for family, op, params in existing
            if selected(claim, family, op, params_of(params))
        ]
        if not own and set(claim.families) <= set(READ.planned):
            continue
        for group in claim.groups:
            assert any(group in names for names in own), f"{claim.id}: {group}"


@pytest.fixture(scope="module")
def verdicts():
    found = judged.judged(RESULTS, SHIPPED, FILE)
    return {one.claim.id: one for one in found}


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("launch-latency-small-kernels", Verdict.REFUTED),
        ("runtime-api-basis", Verdict.SUPPORTED),
        ("amp-speedup-multiple", Verdict.MIXED),
        ("amp-accuracy-loss", Verdict.SUPPORTED),
        ("near-theoretical-compute", Verdict.REFUTED),
        ("cudnn-benchmark-speedup", Verdict.MIXED),
        ("cudnn-benchmark-hurts-dynamic-shapes", Verdict.SUPPORTED),
        ("resnet50-uses-winograd", Verdict.MIXED),
        ("cudnn-multiple-algos", Verdict.SUPPORTED),
        ("toolkit-not-above-driver-max", Verdict.REFUTED),
        ("cudnn-930-in-124", Verdict.REFUTED),
        ("nccl-218", Verdict.REFUTED),
        ("nccl-2193", Verdict.REFUTED),
        ("um-param-swap-latency", Verdict.NOT_MEASURED),
        ("nccl-allreduce-latency-8xa100", Verdict.NOT_MEASURED),
        ("tma-bandwidth-utilization", Verdict.NOT_MEASURED),
    ],
)
def test_what_the_shipped_campaigns_say(verdicts, name, verdict):
    assert verdicts[name].verdict is verdict


def test_every_finding_of_the_shipped_campaigns_is_whole(verdicts):
    measured = [one for one in verdicts.values() if one.findings and one.claim.kind is not Kind.FACT]
    assert len(measured) == 7
    for finding in (finding for one in measured for finding in one.findings):
        assert finding.low <= finding.value <= finding.high
        assert finding.shown
        assert finding.n >= 3
        assert finding.n_cases >= 1
        assert finding.campaign in SHIPPED
        assert finding.where == "on this GPU (NVIDIA H200), with this driver (580.159.04)"


def test_a_toolkit_cannot_show_what_lives_in_the_driver(verdicts):
    for finding in verdicts["launch-latency-small-kernels"].findings:
        assert any("exchanging the toolkit cannot show" in note for note in finding.confounders)


def test_whatever_is_not_measured_says_what_it_would_take(verdicts):
    absent = [one for one in verdicts.values() if one.verdict is Verdict.NOT_MEASURED]
    assert all(one.takes for one in absent)
    compared = [one for one in absent if one.claim.kind is not Kind.FACT]
    for one in compared:
        planned = set(one.claim.families) & set(READ.planned)
        undeclared = "the stacks file has none, declare one there" in one.takes
        how = (
            "which is planned"
            if planned
            else "at least 10 rounds"
            if undeclared
            else "cuda-gains run --stack"
        )
        assert how in one.takes, one.claim.id
        assert one.claim.effect is not Effect.VALUE or "--stack here" in one.takes


STACKS = {  # what both sides of every claim ask for, and both values of every version
    "before": {"cudart.version": "11.8", "torch.version": "2.6.0", "torch.cuda": "11.8"},
    "after": {"cudart.version": "12.4", "torch.version": "2.7.0", "torch.cuda": "12.4"},
}


def made_up(claim, existing):
    """A few of the existing cases that a claim selects, at both values of each of its contrasts."""
    for scope in claim.cases:
        alone = replace(claim, cases=(scope,))
        for contrast in claim.contrasts:
            for case in chosen(alone, existing, contrast.parameter):
                for value in (contrast.baseline, contrast.candidate):
                    yield replace(case, params={**case.params, contrast.parameter: value})
        if not claim.contrasts:
            yield from chosen(alone, existing)


def chosen(claim, existing, parameter=""):
    known = (Case(family, op, params_of(params)) for family, op, params in sorted(existing))
    own = (case for case in known if selected(claim, case.family, case.op, case.params, parameter))
    return list(islice((case for case in own if not parameter or parameter in case.params), 3))


def test_every_claim_gets_a_finding_once_its_cases_are_measured(existing, tmp_path):
    asked = [claim for claim in MEASURABLE if not set(claim.families) & set(READ.planned)]
    cases = {case.case_id: case for claim in asked for case in made_up(claim, existing)}
    quantities = {claim.unit: 1.0 for claim in asked if claim.unit not in (SECONDS, *DERIVED)}
    rows = [
        SyntheticCase(case, 1e-3, quantities=quantities, work=Work(flop=1e9, nbytes=1e6))
        for case in cases.values()
    ]
    rng = np.random.default_rng(3)
    for round_ in range(3):
        for stack, versions in STACKS.items():
            identity = synthetic.identity(Machine(), versions | {"nccl.version": "2.21.5"})
            info = synthetic.run_info("made-up", stack, round=f"round-{round_}")
            measured = [
                replace(synthetic.measurement(row, 1e-3 * np.exp(rng.normal(0, 0.01, 3))), world_size=8)
                for row in rows
            ]
            synthetic.write_run(tmp_path, info, identity, measured)
    found = {one.claim.id: one for one in judged.judged(tmp_path, None, FILE)}
    without = [claim.id for claim in asked if not found[claim.id].findings]
    assert not without
    assert len(asked) > 20
