"""The notebooks run from top to bottom on what ships, are stored bare, and hold no logic."""

import ast
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from synthetic import write_campaign

from bench_lib.comparing import sides
from bench_lib.drawing import gallery
from bench_lib.pages import cells

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [
    "01_what_was_measured",
    "02_noise_and_calibration",
    "03_upgrade_11.8_to_12.4",
    "04_launch_latency",
    "05_unified_memory",
    "06_convolutions_and_amp",
    "07_compile_resnet50",
    "08_allreduce",
    "09_claims",
    "10_tma_and_attention",
    "11_what_works",
    "12_processes",
    "13_allocator_and_overlap",
]


def read(path):
    return nbformat.read(path, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_all_are_there():
    assert [path.stem for path in NOTEBOOKS] == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_bare_and_opens_with_its_parameters(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in code(notebook))
    first, second, *_ = code(notebook)
    assert first.metadata["tags"] == ["parameters"]
    assert all(isinstance(node, ast.Assign) for node in ast.parse(first.source).body)
    assert second.source == "from bench_lib.pages import cells"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_cell_calls_one_function_and_holds_no_logic(path):
    for cell in code(read(path))[2:]:
        tree = ast.parse(cell.source)
        (call,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert ast.unparse(call.func).startswith("cells.")
        assert all(isinstance(node, ast.Assign | ast.Expr) for node in tree.body)
        if ast.unparse(call.func) == "cells.chart":
            assert ast.literal_eval(call.args[2]) in gallery.KINDS


# One kernel runs all of them, emptied before each: starting one takes longer than most notebooks.
RUN = """
import sys
from pathlib import Path
import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
kernel = KernelManager()
kernel.start_kernel(cwd=str(Path(sys.argv[2]).parent))
for path in map(Path, sys.argv[2:]):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    NotebookClient(notebook, km=kernel, timeout=300).execute()
    del notebook.cells[0]
    nbformat.write(notebook, Path(sys.argv[1]) / path.name)
kernel.shutdown_kernel(now=True)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Every notebook run on the shipped campaigns: by name, the HTML of its cells that show something."""
    out = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, "-c", RUN, str(out), *map(str, NOTEBOOKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return {
        path.stem: [output.data["text/html"] for cell in code(read(path))[2:] for output in cell.outputs]
        for path in sorted(out.glob("*.ipynb"))
    }


def test_the_notebooks_run_on_what_ships(outputs):
    shown = {name: len(code(read(ROOT / "notebooks" / f"{name}.ipynb"))) - 2 for name in NAMES}
    assert {name: len(html) for name, html in outputs.items()} == shown
    there = sides.campaigns(ROOT / "results")
    assert "h200-cudart-ladder" in outputs["01_what_was_measured"][0]
    assert "<svg" in outputs["04_launch_latency"][0]
    assert "1.006" in "".join(outputs["04_launch_latency"])
    for name, html in outputs.items():
        campaigns = [c for c in there if c in (ROOT / "notebooks" / f"{name}.ipynb").read_text()]
        if campaigns or name == "09_claims":
            assert "Nothing to show yet" not in "".join(html), name
        else:
            assert "cuda-gains run" in html[0], name


def test_a_cell_without_results_says_how_to_make_some(tmp_path):
    shown = repr(cells.chart(tmp_path, "mine", "migration"))
    assert "no campaign 'mine'" in shown
    assert "cuda-gains run --stack here --rounds 5 --no-null --family unified_memory --campaign mine" in shown
    shown = repr(cells.compared(tmp_path, "mine", "cudart-11.8", "cudart-12.4"))
    assert "cuda-gains run --stack cudart-11.8 --stack cudart-12.4 --rounds 10 --campaign mine" in shown
    assert repr(cells.forest(cells.compared(tmp_path, "mine", "a", "b"))).strip("# \n") == ""
    assert "no chart 'migratio'" in repr(cells.chart(tmp_path, "mine", "migratio"))
    assert "No campaign" in repr(cells.measured(tmp_path))


@pytest.mark.parametrize("campaign", [None, ""])
def test_a_hint_names_a_campaign_or_none(tmp_path, campaign):
    """Without a campaign the command is that of the sides; never `--campaign None` or a bare `--campaign`."""
    apart = repr(cells.compared(tmp_path, campaign, "before/here", "after/here"))
    assert "cuda-gains run --stack here --rounds 5 --campaign before" in apart
    assert "cuda-gains run --stack here --rounds 5 --campaign after" in apart
    files = repr(cells.compared(tmp_path, campaign, "before.json", "after"))
    assert "pytest benchmarks --benchmark-json=before.json" in files
    assert "--campaign local" in repr(cells.compared(tmp_path, campaign, contrast="runtime=11.8:12.4"))
    for cell in (
        cells.campaign(tmp_path, campaign),
        cells.noise(tmp_path, campaign),
        cells.chart(tmp_path, campaign, "migration"),
    ):
        assert "no campaign is named; set one in the cell of parameters (there: none)" in repr(cell)
        assert "--campaign" not in repr(cell)


def test_two_campaigns_are_compared_as_a_notebook_says(tmp_path):
    for name in ("before", "after"):
        write_campaign(tmp_path, name, {"here": 1.0}, rounds=3, null=False)
    shown = repr(cells.compared(tmp_path, None, "before/here", "after/here"))
    assert "What changes from before/here to after/here?" in shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_words_name_every_parameter_to_change(path):
    notebook = read(path)
    names = {node.id for node in ast.walk(ast.parse(code(notebook)[0].source)) if isinstance(node, ast.Name)}
    assert notebook.cells[0].cell_type == "markdown"
    assert [name for name in names if f"`{name}" not in notebook.cells[0].source] == []


def test_a_cell_escapes_what_results_say(tmp_path):
    html = cells.chart(tmp_path, "<script>alert(1)</script>", "migration")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
