"""The charts of a campaign by name: in the report where there are data, and by `cuda-gains chart`."""

from pathlib import Path

import pytest
import synthetic
from figures import in_one_line
from typer.testing import CliRunner

from bench_lib import cli
from bench_lib.commands import reading
from bench_lib.comparing import sides, store
from bench_lib.comparing.compare import compare
from bench_lib.drawing import gallery
from bench_lib.errors import UsageError
from bench_lib.model import Case
from bench_lib.pages import report
from bench_lib.pages.page import Chart
from bench_lib.sections import metrics

SETUP = {"mode": "train", "batch": 128, "precision": "bf16", "layout": "nchw", "metric": "step"}
COMPILED = [
    synthetic.SyntheticCase(Case("compile_resnet50", "resnet50", {**SETUP, "execution": execution}), seconds)
    for execution, seconds in (("eager", 0.03), ("compiled", 0.02))
]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """Campaign `two`: stacks `old` and `new`, in which compiling gives 1.5 and 3 times."""
    folder = tmp_path_factory.mktemp("gallery")
    eager, compiled = COMPILED
    measured = [synthetic.replace(eager, scale={"*": 1.0}), compiled, *synthetic.cases(1)]
    synthetic.write_campaign(folder, "two", {"old": 1.0, "new": 0.5}, rounds=3, measured=measured)
    synthetic.write_campaign(folder, "one", {"old": 1.0}, rounds=1, measured=COMPILED, null=False)
    return folder


def test_the_command_knows_every_chart_by_name():
    assert [str(name) for name in reading.Chart] == list(gallery.KINDS)


def test_each_stack_has_a_chart_of_its_own(results):
    drawn = gallery.draw("compile-speed-up", store.load(results, ["two"]))
    assert [(one.name, one.shows) for one in drawn] == [
        ("compile-speed-up-1", "Speed-up of compiled over eager: new"),
        ("compile-speed-up-2", "Speed-up of compiled over eager: old"),
    ]
    new, old = (in_one_line(one.figure) for one in drawn)
    assert "stack new, NVIDIA H200" in new
    assert "training 3.0" in new or "training 2.9" in new
    assert "6 runs" in old, "the baseline's second run in a round is a run of it too"
    assert "training 1.5" in old or "training 1.4" in old


def test_campaigns_are_never_pooled(results):
    drawn = gallery.draw("compile-speed-up", store.load(results, ["two", "one"]))
    assert [one.shows.rpartition(" ")[2] for one in drawn] == ["one/old", "two/new", "two/old"]


def test_one_stack_has_the_chart_under_its_plain_name(results):
    (drawn,) = gallery.draw("compile-speed-up", store.load(results, ["one"]))
    assert (drawn.name, drawn.shows) == ("compile-speed-up", "Speed-up of compiled over eager")


def test_the_command_writes_png_and_svg(results, tmp_path):
    given = ["chart", "compile-speed-up", "--campaign", "two", "--results", str(results), "-o", str(tmp_path)]
    done = CliRunner().invoke(cli.app, given)
    assert done.exit_code == 0, done.output
    names = [f"compile-speed-up-{i}.{kind}" for i in (1, 2) for kind in ("png", "svg")]
    assert done.output.split() == [str(tmp_path / name) for name in names]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("name", list(gallery.KINDS))
def test_without_its_data_a_chart_is_refused_in_a_sentence(tmp_path, name):
    synthetic.write_campaign(tmp_path, "plain", {"old": 1.0}, rounds=1, null=False, samples=3)
    with pytest.raises(UsageError, match="measure"):
        gallery.draw(name, store.load(tmp_path, ["plain"]))


def test_a_report_shows_the_charts_of_the_families_that_were_measured(results, tmp_path):
    a, b = (sides.resolve(name, "two", results) for name in ("old", "new"))
    whole = store.load(results, ["two"])
    made = report.sections(report.Subject(compare(a, b), sides.joined(a, b), report.Campaign(whole)))
    charts = {
        str(section.title): [block.name for block in section.blocks if isinstance(block, Chart)]
        for section in made
    }
    drawn = {title: names for title, names in charts.items() if names}
    assert list(drawn) == [
        "At a glance",
        "The runs in order of time",
        "torch.compile: what it gives and costs",
    ]
    assert drawn["torch.compile: what it gives and costs"] == ["compile-speed-up-1", "compile-speed-up-2"]


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("amp_conv", "time step"),
        ("cudnn_selection", "time tuning first first_walk second_walk"),
        ("unified_memory", "time fault step exchange hop alloc free"),
        ("compile_resnet50", "step forward backward optimizer first_cold first_warm"),
    ],
)
def test_every_metric_is_defined_where_its_family_means_something_else_too(family, words):
    found = [metrics.metric_text(family, metric) for metric in words.split()]
    assert "defined in the family's benchmark file" not in found
    assert len(set(found)) == len(found)


def test_a_metric_means_what_its_family_means():
    assert "another shape" in metrics.metric_text("cudnn_selection", "first")
    assert "launch" in metrics.metric_text("launch", "first")
    assert metrics.metric_text("mine", "unheard") == "defined in the family's benchmark file"
