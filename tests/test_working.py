"""The families of what works or does not, really run; and their table, of a made-up campaign."""

import json
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import synthetic
from plugin_runs import run_pytest
from synthetic import Machine, SyntheticCase

from bench_lib.comparing import store
from bench_lib.exporting.networks import CONSTRUCTS as MODULES
from bench_lib.model import Case, Status
from bench_lib.pages import cells
from bench_lib.pages.page import Mark
from bench_lib.sections import working
from bench_lib.smoke.checking import CHECKS

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "torchvision", "onnx", "onnxruntime")

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


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Both families in one process: all checks over two gloo ranks, and what torchscript exports."""
    if not all(map(find_spec, NEEDED)):
        pytest.skip("needs torch and the extra onnx")
    out = tmp_path_factory.mktemp("both")
    families = [word for name in working.FAMILIES for word in ("--family", name)]
    some = ("-k", "gloo or (torchscript and not resnet50)", "--results", out, "-q")
    code, output = run_pytest("benchmarks", "--device", "cpu", *families, *some)
    assert code == 0, output
    (path,) = (out / "local" / "cases").glob("*.parquet")
    found = pq.read_table(path).to_pylist()
    assert {one["status"] for one in found} == {"ok"}, [one["reason"] for one in found]
    return [{**one, "params": json.loads(one["params"]), "facts": dict(one["facts"])} for one in found]


def test_every_check_passes_over_two_ranks(rows):
    own = {row["params"]["check"]: row for row in rows if row["family"] == "dtensor_fsdp_smoke"}
    assert sorted(own) == sorted(CHECKS)
    for check, row in own.items():
        assert row["facts"][f"check.{check}"].startswith("passed: ")
        assert (row["world_size"], row["margin"], row["params"]["interconnect"]) == (2, 0.10, "host")


def test_networks_and_small_modules_are_exported(rows):
    own = [row for row in rows if row["family"] == "onnx_export"]
    networks = {row["params"]["network"]: dict(row["quantities"]) for row in own if row["op"] == "export"}
    assert set(networks) == {"transformer"}  # ResNet-50 is slow: test_exporting.py
    assert 0 < networks["transformer"]["relative_error"] < 1e-4
    (constructs,) = [row for row in own if row["op"] == "constructs"]
    assert dict(constructs["quantities"])["exports_tried"] == len(MODULES)
    assert dict(constructs["quantities"])["exports_succeeded"] >= 6
