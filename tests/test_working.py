"""What works: checks and exports as a table, with those that failed and those that could not be tried."""

from pathlib import Path

import synthetic
from synthetic import Machine, SyntheticCase

from bench_lib import cells, store
from bench_lib.model import Case, Status
from bench_lib.page import Mark
from bench_lib.sections import working

PASSED = {"check.sharding": "passed: all"}
CONSTRUCTS = {"export.einsum": "ok", "export.cdist": "dynamo does not export cdist: why", "onnx.version": "1"}


def campaign(results: Path) -> None:
    """A check that passes and one that does not, an export that was not tried, and two constructs."""
    smoke, onnx = "dtensor_fsdp_smoke", "onnx_export"
    passed = SyntheticCase(
        Case(smoke, "check", {"check": "sharding", "backend": "gloo"}),
        facts=PASSED,
    )
    wrong = SyntheticCase(Case(smoke, "check", {"check": "product", "backend": "gloo"}))
    skipped = SyntheticCase(Case(onnx, "export", {"network": "resnet50", "exporter": "dynamo"}))
    tried = SyntheticCase(Case(onnx, "constructs", {"exporter": "dynamo"}), facts=CONSTRUCTS)
    made = [
        synthetic.measurement(passed, [1.0]),
        synthetic.measurement(wrong, [], status=Status.WRONG_RESULT, reason="off by 2\nits log"),
        synthetic.measurement(skipped, [], status=Status.SKIPPED, reason="no onnx"),
        synthetic.measurement(tried, [1.0]),
    ]
    for round_ in ("a", "b"):
        identity = synthetic.identity(Machine(), {"torch.version": "2.6.0"})
        synthetic.write_run(results, synthetic.run_info("c", "old", round=round_), identity, made)


def test_each_thing_is_a_row_however_often_it_was_tried(tmp_path):
    campaign(tmp_path)
    table = working.section(store.load(tmp_path, ["c"])).blocks[0]
    rows = {row[0].text: (row[1], row[2].text, row[3], row[4], row[5]) for row in table.rows}
    assert len(table.rows) == len(rows) == 5
    assert rows["sharding"] == ("gloo", "old", "2.6.0", Mark("works", "supported"), "passed: all")
    assert rows["product"][3:] == (Mark("fails", "refuted"), "off by 2")
    assert rows["resnet50"][3:] == (Mark("skipped", "unclear"), "no onnx")
    assert rows["einsum"][3] == Mark("works", "supported")
    assert rows["cdist"][3:] == (Mark("fails", "refuted"), CONSTRUCTS["export.cdist"])


def test_a_cell_shows_it_or_says_how_to_measure_it(tmp_path):
    campaign(tmp_path)
    assert "dynamo does not export cdist" in repr(cells.working(tmp_path, "c"))
    synthetic.write_campaign(tmp_path, "other", {"old": 1.0}, rounds=1, null=False)
    said = repr(cells.working(tmp_path, "other"))
    assert "--family dtensor_fsdp_smoke --family onnx_export --campaign other" in said
    assert "no campaign 'none'" in repr(cells.working(tmp_path, "none"))
    assert "no campaign is named" in repr(cells.working(tmp_path, None))
