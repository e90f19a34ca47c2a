"""Made-up campaigns with a known truth, and the verdict that each gives a claim; from files to the page."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import synthetic
from synthetic import Machine, Noise, SyntheticCase, canaries, write_campaign
from typer.testing import CliRunner

from bench_lib.claims import judged, pages
from bench_lib.claims.words import Verdict
from bench_lib.cli import app
from bench_lib.comparing import compare, sides
from bench_lib.errors import UsageError
from bench_lib.model import Case, Status, Work
from bench_lib.pages import page
from bench_lib.sections import claimed

ROOT = Path(__file__).parents[1]
QUIET = Noise(process_sd=0.004)
ONE = synthetic.cases(1)
TRUTHS = (0.60, 0.70, 0.80, 0.85, 0.90, 0.95, 1.00, 1.10, 1.20)  # of `new` over `old`, a case each
SIDES = 'baseline = { cudart = "11.8" }\ncandidate = { cudart = "12.4" }\n'


def entry(kind, bound="", *, sides=SIDES, cases='{ family = "launch" }', more="", name="mine"):
    return (
        f'[[claim]]\nid = "{name}"\nclaim = "a sentence"\nsource = "a slide"\nfigure = "30 %"\n'
        f'kind = "{kind}"\n{bound}\n{f"cases = [{cases}]" if cases else ""}\n{sides}{more}\n'
    )


def case(op="op", family="launch", scale=None, quantities=None, flop=None, **params):
    asked = Case(family, op, params or {"metric": "submit"})
    more = {"scale": scale or {}, "quantities": quantities or {}, "work": Work(flop=flop)}
    return SyntheticCase(asked, 100e-6, 0.02, **more)


def campaign(results, factor=1.0, measured=None, name="demo", rounds=6, null=False, **more):
    """A campaign of two CUDA runtimes, `new` taking `factor` times as long."""
    stacks = {"old": 1.0, "new": factor}
    known = measured or [*canaries(), *ONE]
    more = {"rounds": rounds, "null": null, "noise": QUIET, "samples": 5, **more}
    write_campaign(results, name, stacks, measured=known, **more)


@pytest.fixture(scope="module")
def truths(tmp_path_factory):
    """One campaign in which each case has a truth of its own; `kernels` are stored with them."""
    results = tmp_path_factory.mktemp("truths")
    facts = {"kernels": "sm80_Winograd_kernel"}
    known = [replace(case(f"x{truth:.2f}", scale={"new": truth}), facts=facts) for truth in TRUTHS]
    campaign(results, measured=[*canaries(), *known], rounds=8)
    return results


@pytest.fixture
def judge(tmp_path):
    """The verdict on one claim of everything under the results folder."""

    def run(text, campaigns=None, results=tmp_path / "results"):
        path = tmp_path / "claims.toml"
        path.write_text(text)
        (found,) = judged.judged(results, campaigns, path)
        return found

    return run


@pytest.fixture
def write(tmp_path):
    """Write a campaign into the results folder of `judge`; see `campaign`."""
    return partial(campaign, tmp_path / "results")


@pytest.mark.parametrize(
    ("factor", "kind", "bound", "verdict", "more"),
    [
        (0.70, "up to", "value = 0.30", Verdict.SUPPORTED, False),
        (0.60, "up to", "value = 0.30", Verdict.SUPPORTED, True),
        (0.95, "up to", "value = 0.30", Verdict.REFUTED, False),
        (0.85, "about", "value = 0.15", Verdict.SUPPORTED, False),
        (0.85, "at least", "value = 0.10", Verdict.SUPPORTED, False),
        (0.95, "at least", "value = 0.10", Verdict.REFUTED, False),
        (0.90, "range", "range = [0.08, 0.12]", Verdict.SUPPORTED, False),
        (0.80, "range", "range = [0.08, 0.12]", Verdict.SUPPORTED, True),
        (1.20, "range", "range = [0.08, 0.12]", Verdict.REFUTED, False),
        (0.90, "exists", "", Verdict.SUPPORTED, False),
        (1.00, "exists", "", Verdict.REFUTED, False),
        (1.10, "exists", "", Verdict.REFUTED, False),
    ],
)
def test_a_campaign_of_two_stacks(truths, judge, factor, kind, bound, verdict, more):
    one = f'{{ family = "launch", op = "x{factor:.2f}" }}'
    found = judge(entry(kind, bound, cases=one), results=truths)
    assert (found.verdict, found.and_more) == (verdict, more)
    (finding,) = found.findings
    assert finding.value == pytest.approx(1 - factor, abs=0.01)
    assert finding.low < finding.value < finding.high
    assert (finding.n, finding.n_cases, finding.campaign) == (8, 1, "demo")
    assert (finding.baseline, finding.candidate) == ("old", "new")
    assert finding.stacks == "cudart 11.8 -> 12.4"
    assert finding.where == "on this GPU (NVIDIA H200), with this driver (580.159)"


TWO = '{ family = "launch", op = "x0.80" }, { family = "launch", op = "x1.00" }'


def test_groups_that_disagree_are_mixed(truths, judge):
    found = judge(entry("exists", cases=TWO, more='groups = ["op"]'), results=truths)
    assert found.verdict is Verdict.MIXED
    assert {one.group: one.verdict for one in found.findings} == {
        "op=x0.80": Verdict.SUPPORTED,
        "op=x1.00": Verdict.REFUTED,
    }
    assert found.reason.startswith("1 supported, 1 refuted of 2 findings")


def test_without_groups_one_case_shows_what_exists(truths, judge):
    assert judge(entry("exists", cases=TWO), results=truths).verdict is Verdict.SUPPORTED


def test_campaigns_that_disagree_are_mixed_and_one_can_be_asked_alone(write, judge):
    write(0.7, name="good")
    write(1.0, name="bad", seed=1)
    text = entry("up to", "value = 0.30")
    assert judge(text).verdict is Verdict.MIXED
    assert judge(text, ["good"]).verdict is Verdict.SUPPORTED
    assert judge(text, ["bad"]).verdict is Verdict.REFUTED
    with pytest.raises(UsageError, match=r"no campaign 'god'.*did you mean 'good'"):
        judge(text, ["god"])


@pytest.mark.parametrize(
    ("factor", "told"),
    [(0.907, "about 20 more rounds should settle it"), (0.912, "more rounds will hardly settle it")],
)
def test_at_the_bound_more_rounds_are_asked_for_where_they_help(write, judge, factor, told):
    write(factor, rounds=4, seed=1)
    found = judge(entry("at least", "value = 0.10\ntolerance = 0.01"))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert told in found.takes


def test_more_rounds_say_what_they_take(write, judge, tmp_path):
    """As long as the finished rounds of that campaign took, by their records."""
    write(0.907, rounds=4, seed=1)
    plan = {"stacks": ["old", "new"], "null": False, "rounds": 4, "command": "cuda-gains run"}
    (tmp_path / "results/demo/plan.json").write_text(json.dumps(plan))
    (tmp_path / "results/demo/rounds").mkdir()
    for number, seconds in enumerate((50.0, 60.0, 400.0)):
        record = {"started_at": 1.0, "ended_at": 1.0 + seconds}
        (tmp_path / f"results/demo/rounds/{number}.json").write_text(json.dumps(record))
    found = judge(entry("at least", "value = 0.10\ntolerance = 0.01"))
    assert found.takes.endswith("about 20 more rounds should settle it (about 20 min)")


def test_sides_that_never_shared_a_round_settle_nothing(write, judge):
    write(0.7, interleaved=False)
    found = judge(entry("up to", "value = 0.30"))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "never shared a round" in found.reason
    assert found.findings[0].value == pytest.approx(0.3, abs=0.01)
    assert "interleaved rounds" in found.takes


@pytest.mark.parametrize(("rounds", "interval"), [(1, False), (5, True)])
def test_before_and_after_are_two_campaigns_of_one_stack(tmp_path, judge, rounds, interval):
    """A machine that was upgraded: the value is shown, and it settles nothing."""
    results, states = tmp_path / "results", {"before": ("11.8", 1.0), "after": ("12.4", 0.7)}
    more = {"rounds": rounds, "null": False, "interleaved": False, "samples": 5, "noise": QUIET}
    for seed, (name, (version, factor)) in enumerate(states.items()):
        known = [*canaries(), *(replace(case(op), seconds=factor * 1e-4) for op in ("add", "multiply"))]
        identities = {"here": synthetic.cudart(version)}
        write_campaign(results, name, {"here": 1.0}, measured=known, identities=identities, seed=seed, **more)
    one = '{ family = "launch", op = "add" }'
    found = judge(entry("at least", "value = 0.10", cases=one), ["before", "after"])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the stack is not told from the session" in found.reason
    (finding,) = found.findings
    assert (finding.campaign, finding.n) == ("before / after", rounds)
    assert any("confounded with the session" in note for note in finding.confounders)
    assert finding.value == pytest.approx(0.3, abs=0.02)
    assert finding.shown.startswith("time -")
    assert (finding.low is not None, "[" in finding.shown) == (interval, interval)
    (mean,) = judge(entry("at least", "value = 0.10"), ["before", "after"]).findings
    assert (mean.of, mean.n_cases) == ("the mean of 2 cases", 2)
    assert mean.value == pytest.approx(0.3, abs=0.02)


def test_a_machine_that_changed_settles_nothing(write, judge):
    moved = [replace(one, scale={"new": 1.3}) for one in canaries()]
    write(0.7, [*moved, *ONE])
    found = judge(entry("up to", "value = 0.30"))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the canaries moved" in found.reason
    assert any("THE MACHINE CHANGED" in note for note in found.findings[0].confounders)


def test_several_components_that_differ_are_named(write, judge):
    old, new = synthetic.cudart("11.8"), synthetic.cudart("12.4") | {"python.version": "3.13.0"}
    write(0.7, identities={"old": old, "new": new})
    (finding,) = judge(entry("up to", "value = 0.30")).findings
    assert finding.verdict is Verdict.SUPPORTED
    assert any(note.startswith("confounded: cudart 11.8 -> 12.4, python") for note in finding.confounders)


def test_an_effect_of_the_driver_cannot_be_shown_by_a_toolkit(truths, judge):
    (driven,) = judge(entry("exists", more='lives_in = "driver"'), results=truths).findings
    (other,) = judge(entry("exists"), results=truths).findings
    told = [note for note in driven.confounders if note not in other.confounders]
    assert len(told) == 1
    assert "exchanging the toolkit cannot show what another driver does" in told[0]
    assert (driven.driver_kept, other.driver_kept) == (True, False)


def test_the_verdict_itself_says_that_no_driver_was_exchanged(truths, tmp_path, capsys):
    (tmp_path / "c.toml").write_text(
        entry("exists", more='lives_in = "driver"', name="driven") + entry("exists", name="other")
    )
    found = judged.verdicts(truths, None, tmp_path / "c.toml")
    said = "by the toolkit alone, the driver was not exchanged"
    for form in ("table", "md"):
        pages.show(found, form)
        shown = " ".join(capsys.readouterr().out.split())
        driven = shown[shown.index("driven: supported") :].partition("other: supported")
        assert f"driven: supported: {said}" in shown
        assert said not in driven[2]
    assert f"| driven | less time | supported: {said} |" in shown
    assert "| other | less time | supported |" in shown
    text = page.letters(claimed.section(found).blocks[1].rows[0][3])
    assert text == f"supported: {said}"


def test_of_several_candidates_the_nearest_is_compared(judge, tmp_path):
    old, new = synthetic.cudart("11.8"), synthetic.cudart("12.4")
    far = new | {"python.version": "3.13.0"}
    stacks = {"old": 1.0, "far": 0.5, "near": 0.7}
    identities = {"old": old, "far": far, "near": new}
    more = {"rounds": 4, "samples": 5, "null": False, "noise": QUIET}
    write_campaign(tmp_path / "results", "demo", stacks, measured=ONE, identities=identities, **more)
    (finding,) = judge(entry("up to", "value = 0.30")).findings
    assert finding.candidate == "near"


def test_what_was_loaded_for_other_families_moves_no_stack_further_away(judge, tmp_path):
    old, new = synthetic.cudart("11.8"), synthetic.cudart("12.4")
    torch = {"torch.version": "2.6.0", "triton.version": "3.2.0"}
    other = synthetic.SyntheticCase(Case("amp_conv", "conv", {}))
    more = {"rounds": 4, "samples": 5, "null": False, "noise": QUIET}
    for name, factor, identity, measured in (
        ("old", 1.0, old, ONE),
        ("far", 0.5, new | {"python.version": "3.13.0"}, ONE),
        ("near", 0.7, new | torch, [*ONE, other]),
    ):
        arms = {"stacks": {name: factor}, "identities": {name: identity}, "measured": measured}
        write_campaign(tmp_path / "results", f"c-{name}", **arms, **more)
    (finding,) = judge(entry("up to", "value = 0.30")).findings
    assert finding.candidate == "near"


def test_a_contrast_of_several_pairs_of_sides(write, judge):
    factors = {"eager": 1.0, "a": 0.5, "b": 1.0}
    write(1.0, [case(execution=name, scale={"*": factor}) for name, factor in factors.items()])
    sides = 'contrast = ["execution=eager:a", "execution=eager:b"]\ninside = { cudart = "11.8" }\n'
    found = judge(entry("at least", 'value = 0.9\neffect = "speed-up"', sides=sides))
    assert found.verdict is Verdict.MIXED
    assert [one.group for one in found.findings] == ["old, execution=eager:a", "old, execution=eager:b"]
    assert found.findings[0].shown == "1.991x [1.976, 2.006] as fast"


def test_a_campaign_with_too_few_runs_adds_nothing_to_what_another_showed(write, judge):
    write(0.8, [case("add")])
    write(0.8, [case("add")], name="short", rounds=1)
    found = judge(entry("about", "value = 0.2"))
    assert found.verdict is Verdict.SUPPORTED
    assert found.reason.endswith("; 1 more with too few runs")
    assert [(one.campaign, one.n_cases) for one in found.findings] == [("demo", 1), ("short", 0)]
    assert judge(entry("about", "value = 0.2"), ["short"]).verdict is Verdict.INCONCLUSIVE


def test_a_quantity_and_a_value(write, judge):
    held = [case(side=name, quantities={"peak_nbytes": size}) for name, size in (("a", 1e9), ("b", 8e8))]
    write(1.0, held)
    inside = 'inside = { cudart = "11.8" }\n'
    lower = entry("about", 'value = 0.2\nunit = "peak_nbytes"', sides=f'contrast = "side=a:b"\n{inside}')
    assert judge(lower).findings[0].shown == "peak_nbytes -20.0 % [-20.0, -20.0]"
    value = 'range = [7e8, 9e8]\nunit = "peak_nbytes"\neffect = "value"\ntolerance = 0.0'
    found = judge(entry("range", value, sides=inside, cases='{ family = "launch", side = "b" }'))
    assert (found.verdict, found.findings[0].value) == (Verdict.SUPPORTED, pytest.approx(8e8))


@pytest.mark.parametrize(
    ("seconds", "verdict", "more"),
    [
        (99e-6, Verdict.SUPPORTED, False),
        (101e-6, Verdict.SUPPORTED, False),
        (105e-6, Verdict.REFUTED, False),
        (15e-3, Verdict.REFUTED, False),
    ],
)
def test_a_time_is_judged_to_a_share_of_itself(write, judge, seconds, verdict, more):
    write(1.0, [replace(case("add"), seconds=seconds)])
    sides = 'inside = { cudart = "11.8" }\n'
    found = judge(entry("at most", 'value = 100e-6\neffect = "value"', sides=sides))
    assert (found.verdict, found.and_more) == (verdict, more)
    assert verdict is Verdict.SUPPORTED or "wholly on the worse side" in found.reason
    assert found.findings[0].value == pytest.approx(seconds, rel=0.01)
    assert found.findings[0].shown.split()[1] in ("µs", "ms")


def test_the_same_runs_count_as_in_a_comparison(write, judge, tmp_path):
    """The second arm of the baseline shows the noise; evidence of a value it is not."""
    write(0.8, [*canaries(), case("add"), case("add", api="a"), case("add", api="b")], rounds=4, null=True)
    side = 'inside = { cudart = "11.8" }\n'
    value = judge(entry("at most", 'value = 1e-3\neffect = "value"', sides=side))
    assert [(one.baseline, one.n) for one in value.findings] == [("old", 4)]
    assert judge(entry("up to", "value = 0.2")).findings[0].n == 4
    inside = judge(entry("exists", sides=f'contrast = "api=a:b"\n{side}')).findings[0]
    whole = sides.whole_stack("old", "demo", tmp_path / "results")
    assert inside.n == compare.contrast(whole, "api", "a", "b").cases[0].n


def test_a_share_of_the_peak_is_derived_from_flop_and_time(write, judge):
    write(1.0, [case(precision="fp16", flop=0.5 * 989.4e12 * 100e-6)])
    bound = 'value = 0.5\nunit = "peak_share"\neffect = "value"'
    found = judge(entry("about", bound, sides='inside = { cudart = "11.8" }\n'))
    assert (found.verdict, found.findings[0].value) == (Verdict.SUPPORTED, pytest.approx(0.5, rel=0.02))


def test_what_was_measured_on_a_cpu_or_with_fewer_ranks_does_not_count(tmp_path, judge):
    results, names = tmp_path / "results", ("a", "b")
    for number in range(5):
        rows = [
            replace(synthetic.measurement(case(family="reduce", way=name), [factor * 1e-4] * 5), world_size=2)
            for name, factor in zip(names, (1.0 + number * 1e-3, 0.7), strict=True)
        ]
        synthetic.write_run(results, synthetic.run_info("two", "here"), synthetic.identity(Machine()), rows)
        on_cpu = synthetic.run_info("cpu", "here", device="cpu")
        synthetic.write_run(results, on_cpu, synthetic.identity(Machine()), rows)

    def verdict(needs, campaigns=None):
        sides = f'contrast = "way=a:b"\nneeds = "{needs}"\n'
        text = entry("up to", "value = 0.30", sides=sides, cases='{ family = "reduce" }')
        return judge(text, campaigns)

    assert verdict("8 GPUs").verdict is Verdict.NOT_MEASURED
    assert [one.campaign for one in verdict("2 GPUs").findings] == ["two"]
    assert [one.campaign for one in verdict("no GPU").findings] == ["cpu", "two"]
    assert [one.where for one in verdict("no GPU", ["cpu"]).findings] == ["on the CPU"]
    only = verdict("1 GPU", ["cpu"])
    assert only.verdict is Verdict.NOT_MEASURED
    assert only.reason.startswith(
        "its cases were measured on the CPU, and the claim needs 1 GPU; write needs"
    )
    assert only.takes.startswith(f"{only.reason}; 1 GPU; ")  # what a table shows of it


DRIVERS = 'baseline = { driver = "570" }\ncandidate = { driver = "580" }\n'
UNKNOWN = 'baseline = { torch = "1.0" }\ncandidate = { torch = "9.9" }\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (entry("exists"), "--stack cudart-11.8 --stack cudart-12.4 --rounds 10 --family launch"),
        (entry("exists", sides='contrast = "api=cudart:driver"\n'), "--stack here --no-null --rounds 10"),
        (entry("exists", more='needs = "8 GPUs"'), "8 GPUs; at least 10 rounds"),
        ('planned = ["launch"]\n' + entry("exists"), "the family launch, which is planned"),
        (
            entry("exists", sides=UNKNOWN),
            "a stack that holds torch 9.9: the stacks file has none, declare one",
        ),
        (entry("exists", sides=DRIVERS), "a machine with driver 570; a machine with driver 580"),
        (entry("exists", sides=DRIVERS), "cuda-gains run --stack here --rounds 10"),
        (entry("exists", cases='{ family = "our_own", op = "x" }'), "nothing of the family 'our_own' was"),
    ],
)
def test_what_is_not_measured_says_what_it_would_take(judge, text, told):
    found = judge(text)
    assert found.verdict is Verdict.NOT_MEASURED
    assert told in found.takes
    if "a stack that" in told:  # no command names a stack that `run` would refuse
        assert "cuda-gains run" not in found.takes
    elif "planned" not in told:
        command = found.takes.partition("cuda-gains ")[2]
        assert shlex.split(command)[0] == "run"
        assert not set("()<>;|&$") & set(command)


def test_a_family_that_nobody_knows_is_an_error_that_names_the_nearest(truths, judge):
    with pytest.raises(UsageError, match=r"no family 'lunch', which claim 'mine' .*did you mean 'launch'"):
        judge(entry("exists", cases='{ family = "lunch" }'), results=truths)


COMPONENT = r"no component '{}' by which claim 'mine' could choose stacks.*{}"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cases": '{ family = "launch", op = "ad" }'}, r"no op 'ad' in family launch.*did you mean 'add'"),
        ({"cases": '{ family = "launch", op = "con*" }'}, r"no op 'con\*' in family launch"),
        ({"cases": '{ family = "launch", metrik = "submit" }'}, r"no parameter 'metrik'.*mean 'metric'"),
        ({"sides": 'contrast = "apy=cudart:driver"\n'}, r"no parameter 'apy' in family launch.*mean 'api'"),
        ({"more": 'groups = ["ap"]'}, r"no parameter 'ap' in family launch.*did you mean 'api'"),
        ({"sides": SIDES.replace("cudart", "cudrt")}, COMPONENT.format("cudrt", "did you mean 'cudart'")),
        ({"sides": SIDES.replace("cudart", "campaign")}, COMPONENT.format("campaign", "with --campaign")),
        ({"sides": 'contrast = "api=a:b"\ninside = { torhc = "2" }\n'}, COMPONENT.format("torhc", "torch")),
    ],
)
def test_a_name_that_cannot_be_is_one_sentence_with_the_nearest(judge, wrong, told):
    """No result is there: what the benchmark files and the stacks can hold is known without any."""
    with pytest.raises(UsageError, match=told):
        judge(entry("exists", **wrong))


def test_a_fact_about_a_component_that_nobody_has_is_an_error(judge):
    with pytest.raises(UsageError, match=COMPONENT.format("ncl", "did you mean 'nccl'")):
        judge(fact(look("version", of="ncl", **{"is": "2.18"})))


def test_a_family_whose_file_lies_elsewhere_is_known_by_its_results(write, judge):
    write(1.0, [case("step", family="our_own", variant="a")], name="one")
    write(1.0, [case("other", family="our_own", variant="a")], name="two", seed=1)
    known = '{ family = "our_own", op = "step", variant = "a" }'
    assert judge(entry("exists", cases=known)).verdict is Verdict.REFUTED
    with pytest.raises(UsageError, match=r"no op 'stepp' in family our_own.*did you mean 'step'"):
        judge(entry("exists", cases=known.replace("step", "stepp")))
    with pytest.raises(UsageError, match=r"no parameter 'varient' in family our_own.*mean 'variant'"):
        judge(entry("exists", cases=known.replace("variant", "varient")))
    with pytest.raises(UsageError, match=r"no op 'brand_new' in family our_own.*with --benchmarks"):
        judge(entry("exists", cases=known.replace("step", "brand_new")))
    with pytest.raises(UsageError, match=r"no value of variant 'b' in family our_own.*there: a"):
        judge(entry("exists", cases=known.replace('"a"', '"b"')))
    part = judge(entry("exists", cases=known), ["two"])
    assert part.verdict is Verdict.NOT_MEASURED
    assert "no op 'step' of the family our_own is in the results that were read" in part.reason


OWN = """
import pytest

FAMILY = "our_own"
SIZES = (64, 128)


def made():
    return [1, 2]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("form", "on"), [("a", True), pytest.param("b", False, id="off")])
def bench_step(bench, n, form, on):
    pass


@pytest.mark.parametrize("made", made())
def bench_other(bench, made, m):
    pass
"""


@pytest.fixture
def own(tmp_path):
    """The verdict on one claim, with the file of its family at hand and no result."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "bench_our_own.py").write_text(OWN)
    (tmp_path / "results").mkdir()

    def run(text):
        path = tmp_path / "claims.toml"
        path.write_text(text)
        (found,) = judged.verdicts(tmp_path / "results", None, path, [folder]).claims
        return found

    return run


@pytest.mark.parametrize(
    ("cases", "contrast", "told"),
    [
        ('op = "stpe"', "", "no op 'stpe' in family our_own.*did you mean 'step'"),
        ('fomr = "a"', "", "no parameter 'fomr' in family our_own.*did you mean 'form'"),
        ("n = 65", "", "no value of n '65' in family our_own.*there: 64, 128; did you mean '64'"),
        ("n = [64, 1280]", "", "no value of n '1280'.*did you mean '128'"),
        ('op = "step", on = "treu"', "", "no value of on 'treu'.*did you mean 'true'"),
        ('form = "b"', "n=64:127", "no value of n '127' in family our_own.*did you mean '128'"),
        ('op = "other", n = 64', "", "no case of family our_own has op 'other' together with n = 64"),
    ],
)
def test_the_file_of_an_own_family_tells_what_its_claims_can_name(own, cases, contrast, told):
    sides_ = f'contrast = "{contrast}"\n' if contrast else SIDES
    with pytest.raises(UsageError, match=told):
        own(entry("exists", cases=f'{{ family = "our_own", {cases} }}', sides=sides_))


@pytest.mark.parametrize(
    "cases", ["n = 64", 'n = "6*"', 'op = "step", on = true, form = "a"', "made = 7", 'op = "other", m = 3']
)
def test_a_value_that_a_case_may_have_is_no_mistake(own, cases, tmp_path):
    found = own(entry("exists", cases=f'{{ family = "our_own", {cases} }}'))
    assert found.verdict is Verdict.NOT_MEASURED
    assert f"--benchmarks {tmp_path / 'own'} --campaign NAME" in found.takes


@pytest.mark.parametrize("second", [OWN, OWN.replace("128", "256")])
def test_a_family_in_two_folders_has_the_values_of_either(own, tmp_path, monkeypatch, second):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "bench_copy.py").write_text(second)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"no value of n '65' in family our_own.*there: 64, "):
        own(entry("exists", cases='{ family = "our_own", op = "step", n = 65 }'))
    assert own(entry("exists", cases='{ family = "our_own", n = 128 }')).verdict is Verdict.NOT_MEASURED


def test_a_quantity_that_its_cases_do_not_hold_is_named(write, judge):
    write(1.0, [case("a", family="our_own", quantities={"peak_nbytes": 5.0}, n=1)])
    sides_ = 'effect = "value"\nunit = "peak_nbyte"\n'
    text = entry("at most", "value = 9", sides=sides_, cases='{ family = "our_own" }')
    assert judge(text).reason == "its cases hold no quantity 'peak_nbyte'; there: peak_nbytes, seconds"


def test_parameters_that_no_case_has_together_select_nothing(write, judge):
    write(1.0, [case("a", family="our_own", n=1), case("b", family="our_own", m=2)])
    with pytest.raises(UsageError, match=r"no case of family our_own has op '\*' together with n = 1, m = 2"):
        judge(entry("exists", cases='{ family = "our_own", n = 1, m = 2 }'))


def test_a_folder_without_benchmark_files_is_named(write, tmp_path):
    write(1.0)
    (tmp_path / "claims.toml").write_text(entry("exists"))
    with pytest.raises(UsageError, match=r"--benchmarks .*nowhere holds no bench_NAME.py"):
        judged.verdicts(tmp_path / "results", None, tmp_path / "claims.toml", [tmp_path / "nowhere"])


def test_names_are_read_without_importing_a_benchmark(tmp_path):
    path = tmp_path / "claims.toml"
    path.write_text(entry("exists", cases='{ family = "amp_conv", op = "con" }'))
    code = (
        "import sys; from pathlib import Path; from bench_lib.claims import judged\n"
        f"try: judged.judged(Path({str(tmp_path)!r}), None, Path({str(path)!r}))\n"
        "except Exception as error: print(error)\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "no op 'con' in family amp_conv" in done.stdout
    assert done.stdout.endswith("False\n")


def fact(check, record=""):
    return entry("fact", f"check = {check}\n{record}", sides="", cases="")


def look(name, **given):
    """A check as it stands in a claims file."""
    keys = {"look": name, **given}
    return "{ " + ", ".join(f'"{key.replace("_", ".")}" = "{value}"' for key, value in keys.items()) + " }"


NOWHERE = look("installed", package="no-such-package", requires="x")
PLUGGY = look("installed", package="pytest", requires="^pluggy")
MAIN = {"package": "pytest", "path": "_pytest/main.py", "contains": "class Session"}
LAUNCHES = {"family": "launch", "named": "kernels"}


@pytest.mark.parametrize(
    ("check", "verdict", "told"),
    [
        (look("version", of="cudart", **{"is": "12.4"}, python="3.12"), Verdict.MIXED, "demo/new loaded"),
        (look("version", of="python", **{"is": "3.12"}, cudart="11.8"), Verdict.SUPPORTED, "python 3.12.3"),
        (look("version", of="nccl", **{"is": "2.18"}, cudart="12.4"), Verdict.REFUTED, "nccl 2.21.5"),
        (
            look("version", of="cudart", **{"is": "12.4"}, driver_cuda="13.0", absent="yes"),
            *(Verdict.REFUTED, "demo/new loaded cudart 12.4, beside driver.cuda 13.0"),
        ),
        (PLUGGY, Verdict.SUPPORTED, "requires pluggy"),
        (look("installed", package="pytest", requires="^torch"), Verdict.REFUTED, "nothing like"),
        (look("installed", package="pytest", version="0.1", requires="x"), Verdict.NOT_MEASURED, ""),
        (NOWHERE, Verdict.NOT_MEASURED, ""),
        (look("file", **MAIN), Verdict.SUPPORTED, "_pytest/main.py of pytest"),
        (look("file", **MAIN, absent="yes"), Verdict.REFUTED, "holds 'class Session'"),
        (look("file", **{**MAIN, "path": "no/such.py"}), Verdict.NOT_MEASURED, ""),
        (look("stored", **LAUNCHES, contains="winograd"), Verdict.SUPPORTED, "stored kernels with"),
        (look("stored", **LAUNCHES, contains="fft"), Verdict.REFUTED, "stored no kernels with"),
        (f"[{look('stored', **LAUNCHES, contains='fft')}, {PLUGGY}]", Verdict.MIXED, "pluggy"),
        (look("stored", **LAUNCHES, contains="winograd", cudart="12.4"), Verdict.SUPPORTED, "demo/new"),
        (
            look("stored", **LAUNCHES, contains="winograd", cudart="11.8", absent="yes"),
            *(Verdict.REFUTED, "demo/old"),
        ),
        (look("stored", **LAUNCHES, contains="winograd", torch="9.9"), Verdict.NOT_MEASURED, ""),
    ],
)
def test_a_fact_is_looked_up_in_the_real_thing(truths, judge, check, verdict, told):
    found = judge(fact(check), results=truths)
    assert found.verdict is verdict
    assert told in found.reason


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        ("supported", Verdict.SUPPORTED),
        ("refuted", Verdict.REFUTED),
        ("mixed", Verdict.MIXED),
        ("open", Verdict.NOT_MEASURED),
    ],
)
def test_where_nothing_can_be_looked_at_the_record_is_cited(judge, says, verdict):
    found = judge(fact(NOWHERE, f'record = "as the notes say"\nrecord_says = "{says}"'))
    assert found.verdict is verdict
    assert "as the notes say" in found.reason


def run(*arguments):
    return CliRunner().invoke(app, ["claims", *map(str, arguments)])


@pytest.fixture
def command(write, tmp_path):
    """The command's arguments for a refuted claim and one that was not measured."""
    write(1.0)
    path = tmp_path / "claims.toml"
    path.write_text(
        entry("up to", "value = 0.30") + entry("exists", cases='{ family = "ladder" }', name="other")
    )
    return ("--results", tmp_path / "results", "--claims", path)


def test_strict_is_the_exit_code(command):
    assert run(*command).exit_code == 0
    assert run(*command, "--strict").exit_code == 1
    assert run(*command, "--strict", "--campaign", "demo").exit_code == 1


TURNED = 'baseline = { cudart = "12.4" }\ncandidate = { cudart = "11.8" }\n'
HELD = entry("exists", name="held", sides=TURNED)
ABSENT = entry("exists", cases='{ family = "ladder" }', name="absent")
UNSURE = entry("at least", 'value = 0.2\neffect = "more"\ntolerance = 0.0', name="unsure")


@pytest.mark.parametrize(
    ("text", "named", "told"),
    [
        (HELD, True, ""),
        (HELD + ABSENT, True, "--strict: not measured: absent"),
        (HELD + ABSENT, False, ""),
        (ABSENT, False, "--strict: no claim was judged"),
        (UNSURE, True, ""),
        ("", False, "--strict: no claim was judged"),
    ],
)
def test_strict_does_not_pass_where_nothing_was_judged(write, tmp_path, monkeypatch, text, named, told):
    """A target that nobody measured, or a campaign of another name, must not stay green in CI."""
    write(1.2, rounds=3)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "benchmarks" / "claims.toml"
    path.parent.mkdir()
    path.write_text(text)
    result = run("--strict", *(("--claims", path) if named else ()))
    assert (result.exit_code, result.stderr.strip()) == (1 if told else 0, told)


def test_the_table_says_everything_that_a_verdict_needs(command):
    shown = " ".join(run(*command).output.split())
    for told in (
        *("1 measured: 1 refuted", "1 not measured", "up to 30 % less time", "on this GPU (NVIDIA H200)"),
        *("with this driver (580.159)", "cudart 11.8 -> 12.4", "a slide: 30 %", "cuda-gains run --stack"),
    ):
        assert told in shown


def test_a_number_never_stands_beside_not_measured(tmp_path):
    """One of two cases fails, or both: said as what it is."""
    rounds, versions = range(3), {"old": "11.8", "new": "12.4"}
    for failing, name in ((1, "half"), (2, "none")):
        for number, (stack, version) in product(rounds, versions.items()):
            rows = [synthetic.measurement(case(op), [1e-4] * 5) for op in ("add", "multiply")]
            dead = failing if stack == "new" else 0
            broken = [replace(one, status=Status.CRASHED, reason="it died") for one in rows[:dead]]
            info = synthetic.run_info(name, stack, round=f"round-{number}")
            identity = synthetic.identity(Machine(), synthetic.cudart(version))
            synthetic.write_run(tmp_path, info, identity, [*broken, *rows[dead:]])
    path = tmp_path / "claims.toml"
    path.write_text(entry("about", "value = 0.0"))
    command = ("--results", tmp_path, "--claims", path, "--format", "md", "--campaign")
    half, none = (" ".join(run(*command, name).output.split()) for name in ("half", "none"))
    assert half.startswith("# 1 claim judged on half")
    assert "1 measured: 1 not measured in full" in half
    assert "1 of 2 cases could not be compared" in half
    assert "the number is of the others" in half
    assert "0 measured" in none
    assert "1 not measured" in none
    assert "it died" in none
    assert "mend it and measure again" in none


def test_each_row_of_a_value_names_its_stack(write, tmp_path):
    write(1.0)
    path = tmp_path / "claims.toml"
    path.write_text(entry("at most", 'value = 1.0\neffect = "value"', sides=""))
    page = run("--results", tmp_path / "results", "--claims", path, "--format", "md").output
    assert "|  | demo, old | supported |" in page
    assert "|  | demo, new | supported |" in page


def test_json_holds_every_finding(command):
    document = json.loads(run(*command, "--format", "json").output)
    assert document["counts"] == {
        **dict.fromkeys(["supported", "mixed", "inconclusive"], 0),
        "refuted": 1,
        "not measured": 1,
    }
    one, other = document["claims"]
    assert (one["verdict"], one["claim"]["bound"]) == ("refuted", "up to 30 % less time")
    (finding,) = one["findings"]
    assert finding["low"] < finding["value"] < finding["high"]
    assert finding["where"].startswith("on this GPU")
    assert other["takes"]


def test_hostile_text_is_shown_as_letters(truths, tmp_path):
    path = tmp_path / "claims.toml"
    nasty = "<script>alert(1)</script> [bold]\\u001b[31m | `x`"
    path.write_text(entry("up to", "value = 0.30").replace("a sentence", nasty).replace("mine", nasty))
    command = ("--results", truths, "--claims", path)
    table, page = run(*command).output, run(*command, "--format", "md").output
    assert "\x1b" not in table + page
    assert "<script>alert(1)</script>" in table
    assert "<script>" not in page


def test_a_damaged_file_is_named_and_the_rest_is_judged(write, tmp_path):
    write(0.7)
    broken = tmp_path / "results" / "broken" / "runs" / "x.parquet"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"PAR1 no more")
    path = tmp_path / "claims.toml"
    path.write_text(entry("up to", "value = 0.30"))
    found = judged.verdicts(tmp_path / "results", None, path)
    assert found.claims[0].verdict is Verdict.SUPPORTED
    assert str(broken) in dict(found.left_out)
    assert [str(section.title) for section in pages.sections(found)][-1] == "Left out"
