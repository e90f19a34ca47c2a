"""The dashboard of deploy/grafana asks for nothing but what `compare --format openmetrics` writes."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import synthetic
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, BinaryExpr, MatchOp, VectorSelector
from typer.testing import CliRunner

from bench_lib import cli

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"
DASHBOARD = json.loads((FOLDER / "cuda-gains.json").read_text())
GRID_WIDTH = 24  # of Grafana's dashboards
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+), (?P<label>\w+)\)")
_ALERT = re.compile(r"`(cuda_gains_cases[^`]+)`")

Sample = tuple[str, dict[str, str]]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> list[Sample]:
    """The samples of a comparison and of a bridge, as the command wrote them."""
    folder = tmp_path_factory.mktemp("grafana")
    one, two = synthetic.cases(2)
    one = synthetic.replace(one, quantities={"peak_nbytes": 1e9})
    stacks = {"old": 1.0, "new": 1.2, "newer": 1.2}
    measured = [*synthetic.canaries(), one, two]
    synthetic.write_campaign(folder, "demo", stacks, rounds=4, measured=measured, samples=5)
    samples = []
    for names in (["old", "new"], ["old", "new", "newer"]):
        asked = ["compare", *names, "--campaign", "demo", "--results", str(folder), "--format", "openmetrics"]
        done = CliRunner().invoke(cli.app, asked, catch_exceptions=False)
        families = text_string_to_metric_families(done.stdout)
        samples += [(sample.name, sample.labels) for family in families for sample in family.samples]
    return samples


def targets() -> list[dict[str, Any]]:
    return [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


def variables() -> list[re.Match[str]]:
    queries = [one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    found = [_LABEL_VALUES.fullmatch(query) for query in queries]
    assert all(found), queries
    return [match for match in found if match]


def expressions() -> list[str]:
    alert = " ".join(_ALERT.search((FOLDER / "README.md").read_text())[1].split())
    return [*(target["expr"] for target in targets()), *(v["selector"] for v in variables()), alert]


def of_expression(text: str) -> tuple[list[VectorSelector], set[str]]:
    """The selectors of a query, and the labels by which it groups or matches."""
    selectors, labels = [], set()

    def visit(node):
        if isinstance(node, VectorSelector):
            selectors.append(node)
        if isinstance(node, AggregateExpr | BinaryExpr) and node.modifier is not None:
            modifier = node.modifier if isinstance(node, AggregateExpr) else node.modifier.matching
            labels.update(modifier.labels if modifier else ())

    promql.walk(promql.parse(text), visit)
    return selectors, labels


def chosen(selector: VectorSelector, samples: list[Sample]) -> list[Sample]:
    """What a selector finds in the file, a variable of Grafana standing for any value."""
    found = [sample for sample in samples if sample[0] == selector.name]
    for matcher in selector.matchers.matchers:
        value = re.sub(r"\$\w+", ".*", matcher.value)
        pattern = value if matcher.op is MatchOp.Re or "$" in matcher.value else re.escape(value)
        found = [sample for sample in found if re.fullmatch(pattern, sample[1].get(matcher.name, ""))]
    return found


def wrong(text: str, samples: list[Sample]) -> list[str]:
    """Names of a query that the file does not have, and selectors that find nothing in it."""
    selectors, grouped = of_expression(text)
    found = []
    for selector in selectors:
        there = {label for name, labels in samples if name == selector.name for label in labels}
        if not there:
            found.append(f"metric {selector.name}")
            continue
        asked = {matcher.name for matcher in selector.matchers.matchers} | grouped
        found += [f"label {label} of {selector.name}" for label in sorted(asked - there)]
        found += [] if chosen(selector, samples) else [f"nothing for {selector}"]
    return found


@pytest.mark.parametrize("expression", expressions())
def test_every_query_finds_what_it_names_in_a_written_file(written, expression):
    assert of_expression(expression)[0], "a query without a metric"
    assert wrong(expression, written) == []


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("cuda_gains_ratios", ["metric cuda_gains_ratios"]),
        ('cuda_gains_ratio{op="empty"}', ["label op of cuda_gains_ratio", "nothing for"]),
        ("sum by (op) (cuda_gains_ratio)", ["label op of cuda_gains_ratio"]),
        ('cuda_gains_cases{change="worse",campaign="$campaign"}', ["nothing for"]),
        ("cuda_gains_ratio / on (side) cuda_gains_margin", ["label side of cuda_gains_ratio"] * 1),
    ],
)
def test_what_the_file_does_not_have_is_found(written, expression, said):
    found = wrong(expression, written)
    assert found, expression
    assert all(one.startswith(part) for one, part in zip(found, said, strict=False))


def test_variables_and_legends_name_labels_of_their_metrics(written):
    for match in variables():
        (selector,) = of_expression(match["selector"])[0]
        assert match["label"] in {label for _, labels in chosen(selector, written) for label in labels}
    for target in targets():
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        (selector,) = of_expression(target["expr"])[0]
        assert named <= {label for _, labels in chosen(selector, written) for label in labels}


def test_every_variable_that_is_used_is_declared():
    declared = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(DASHBOARD))) - {"__all"}
    assert used == declared


def test_panels_have_ids_of_their_own_and_lie_beside_each_other():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not own & cells, panel["title"]
        assert max(x for x, _ in own) < GRID_WIDTH
        cells |= own
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
