"""What is selected and in which order, and what is refused: each with one sentence and exit code 4."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from plugin_runs import HEAD, PLUGINS, Runs
from synthetic import write_campaign

GRID = """
@pytest.mark.core(n=[1, 2], api="a")
@pytest.mark.core(n=9)
@pytest.mark.full(n=[8, 9])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("api", ["a", "b"])
def bench_grid(bench, n, api):
    bench.record(Series((1.0, 2.0)))

@pytest.mark.core
def bench_always(bench):
    bench.record(Series((1.0, 2.0)))

@pytest.mark.full
def bench_full(bench):
    bench.record(Series((1.0, 2.0)))
"""
OPT_IN = HEAD.replace('"made"', '"asked"') + (
    "pytestmark = pytest.mark.opt_in\n\n@pytest.mark.core\n@pytest.mark.full\n"
    "def bench_it(bench):\n    bench.record(Series((1.0,)))\n"
)
OTHER = HEAD.replace('"made"', '"other"') + "def bench_it(bench):\n    bench.record(Series((1.0,)))\n"
PLAIN = "def test_plain():\n    assert True\n"


@pytest.fixture
def runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs(pytester, monkeypatch)
    runs.write(GRID)
    runs.write(OTHER, "bench_other", head="")
    runs.write(OPT_IN, "bench_asked", head="")
    runs.write(PLAIN, "test_plain", head="")
    return runs


def grid(*values: tuple[int, str]) -> set[str]:
    return {f"made/grid[api={api},n={n}]" for n, api in values}


SMALL = grid((1, "a"), (2, "a"), (3, "a"), (1, "b"), (2, "b"), (3, "b"))
LARGE = grid((8, "a"), (9, "a"), (8, "b"), (9, "b"))
CORE = grid((1, "a"), (2, "a"), (9, "a"), (9, "b"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), SMALL | {"made/always", "other/it"}),
        (("--full",), SMALL | LARGE | {"made/always", "made/full", "other/it"}),
        (("--quick",), CORE | {"made/always"}),
        (("--family=other",), {"other/it"}),
        (("--family=asked", "--full"), {"asked/it"}),
        (("--family=asked", "--family=other", "--quick"), {"asked/it"}),
        (("--family=other", "--family=made", "--quick"), CORE | {"made/always"}),
    ],
)
def test_what_is_selected(runs: Runs, options, expected):
    done = runs.pytest(*options)
    assert set(runs.statuses()) == expected
    assert done.parseoutcomes()["passed"] == len(expected) + 1  # the plain test is nobody's business
    (run,) = runs.table("runs")
    assert run["policy"] == ("quick" if "--quick" in options else "default")


def test_a_family_that_wants_to_be_named_says_so_when_nothing_else_is_there(runs: Runs):
    done = runs.pytest("bench_asked.py")
    assert not runs.table("cases")
    done.stdout.fnmatch_lines(["ERROR: asked runs only where it is named: --family asked"])


def test_the_last_line_leads_to_a_verdict(runs: Runs):
    """Below the tables of pytest-benchmark and the end of pytest itself."""
    first = (
        "next: cuda-gains run --stack here --rounds 3 --campaign before --family asked --family canary "
        "--quick --benchmarks "
    )
    last = "after the upgrade the same with --campaign after, then cuda-gains compare before after"
    done = runs.pytest("bench_asked.py", "--family=asked", "--quick").outlines
    assert done[-1].startswith(first)
    assert done[-1].endswith(f"  # for verdicts; {last}")
    for more in ("the same command twice more", "the same command once more", ""):
        done = runs.pytest("bench_asked.py", "--family=asked", "--quick", "--campaign=before").outlines
        assert (
            done[-1] == f"next: {more}  # for verdicts; {last}"
            if more
            else f"next: {last.replace('the same', 'this command')}"
        )
    done = runs.pytest("bench_asked.py", "--family=asked", "--full").outlines
    assert " --campaign before-2 " in done[-1]  # `before` is taken
    done = runs.pytest("bench_asked.py", "--family=asked", "--full", "--campaign=before").outlines
    said = (
        "cuda-gains: before already holds 3 other runs (by plain pytest, policy quick, asked); name your own "
    )
    assert f"{said}with --campaign" in done


def test_canaries_come_along_in_what_is_to_be_typed(runs: Runs):
    """In a folder of one's own too, where they are the suite's, however many families it holds."""
    started = "next: cuda-gains run --stack here --rounds 3 --campaign before "
    assert (
        f"{started}--family made --family other --family canary --benchmarks " in runs.pytest().outlines[-1]
    )
    for name in ("a", "b"):
        runs.write(OTHER.replace("other", name), f"bench_{name}", head="")
    named = [f"--family {name}" for name in ("a", "b", "made", "other", "canary")]
    assert f"{started}{' '.join(named)} --benchmarks " in runs.pytest().outlines[-1]
    alone = runs.pytest("bench_a.py", "-k", "it").outlines[-1]
    assert f"{started}--family a -k it --benchmarks " in alone  # it would leave them out

    runs.write("def bench_it(bench, gpu): pass\n", "bench_canary", head="FAMILY = 'canary'\n")
    assert runs.pytest("--device=cpu").outlines[-1].startswith(f"{started}--device cpu --benchmarks ")


MIXED = (
    HEAD
    + """
from bench_lib.errors import NotApplicable, Unavailable

@pytest.mark.parametrize("n", [1, 2])
def bench_gpu(bench, gpu, n):
    bench(lambda: None)

def bench_lacking(bench):
    raise Unavailable("numpad is not installed; `pip install numpad`")

@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast"])
def bench_conv(bench, precision):
    bench.record(Series((1.0,)))
"""
)


def test_the_end_says_where_the_results_lie_what_skipped_means_and_how_to_read_one_run(runs: Runs):
    apart = "\ndef bench_apart(bench):\n    raise NotApplicable('the CPU waits for nothing')\n"
    runs.write(MIXED.replace('"made"', '"amp_conv"') + apart, "bench_amp_conv", head="")
    done = runs.pytest("bench_amp_conv.py", "--benchmark-json=run.json")
    assert done.ret == 0
    results, read, last = done.outlines[-3:]
    assert results == (
        "results: results/local and run.json; 2 cases measured, 4 skipped, which is no failure: "
        "2 need a GPU, 1 lacks what is named above, 1 does not apply"
    )
    assert done.parseoutcomes() == {"passed": 2, "skipped": 4}
    command, _, comment = read.removeprefix("read: ").partition("  # ")
    assert comment == "a page with charts; the times stand above"
    assert last.startswith("next: ")
    made = runs.pytester.run(*shlex.split(command))
    assert made.ret == 0
    assert "bf16" in (runs.path / "local.html").read_text()


def test_the_end_counts_what_failed_and_proposes_to_mend_that_first(runs: Runs):
    failing = MIXED + "\ndef bench_wrong(bench):\n    raise ValueError('broken')\n"
    runs.write(failing, "bench_mixed", head="")
    done = runs.pytest("bench_mixed.py")
    results, last = done.outlines[-2:]
    assert results.startswith("results: results/local; 2 cases measured, 1 failed, 3 skipped, which is no ")
    assert last == "next: mend what failed (1 failed), the reasons stand above; then this command again"


def test_results_belong_to_the_project_also_from_a_folder_inside_it(runs: Runs):
    (runs.path / "docs").mkdir()
    os.chdir(runs.path / "docs")  # pytester goes back
    done = runs.pytest("../bench_other.py").outlines
    assert next(line for line in done if line.startswith("run ")).endswith(" in ../results/local")
    assert " --benchmarks .. --results ../results  # for verdicts; " in done[-1]
    assert len(runs.table("runs")) == 1
    assert not (runs.path / "docs/results").exists()
    (runs.path / "docs/results").mkdir()  # somebody wants them there
    runs.pytest("../bench_other.py")
    assert (runs.path / "docs/results/local/runs").is_dir()


REFUSED = {
    "--family=othr": "there is no family 'othr'; did you mean 'other'? Known are asked, made, other",
    "--family=xyz": "there is no family 'xyz'; known are asked, made, other",
    "--stack=her": "there is no stack 'her'; did you mean 'here'?",
    "--campaign=a/b": "campaign name 'a/b' has characters that a folder name should not have*",
    "--campaign=gpu": "campaign 'gpu' in results was measured on a GPU, and this run would measure the CPU*",
    "--wheels=nowhere": "the folder of --wheels, nowhere, does not exist; name the one with the wheels",
    "--require-gpu": "--require-gpu was given and there is no GPU to measure: libcuda.so.1 not found*",
    "--device=cuda": "--device cuda was given and there is no GPU to measure: libcuda.so.1 not found*",
    "--quick --full": "--quick and --full exclude each other; give one of them",
    "--benchmark-disable": "--benchmark-disable measures nothing for --benchmark-json; give one of them",
    "--results=bench_made.py": "*cannot be written: *bench_made.py*choose another place*",
    "-n 2": "*run pytest without -n",
    "-n 1": "*run pytest without -n",
}


@pytest.mark.parametrize("options", REFUSED)
def test_refusals_are_one_sentence_and_exit_code_4(runs: Runs, options, monkeypatch):
    monkeypatch.setenv("PYTEST_PLUGINS", f"{PLUGINS},xdist.plugin")
    if options == "--campaign=gpu":
        write_campaign(runs.path / "results", "gpu", {"here": 1.0}, rounds=1, null=False)
    done = runs.pytest("--benchmark-json=run.json", *options.split(" "))
    assert done.ret == 4
    done.stderr.fnmatch_lines([f"ERROR: {REFUSED[options]}"])
    assert "Traceback" not in done.stdout.str() + done.stderr.str()
    assert not runs.table("cases")
    assert not runs.journals()


@pytest.mark.parametrize("option", ["--benchmark-json=bench_made.py/run.json", "--benchmark-json=results"])
def test_a_json_file_that_cannot_be_written_is_known_before_the_first_case(runs: Runs, option):
    (runs.path / "results.old").mkdir()
    (runs.path / "results.old" / "kept").touch()
    (runs.path / "results").mkdir()
    done = runs.pytest(option)
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: *cannot be written*choose another place*"])
    assert not runs.table("cases")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_only_a_regular_file_gives_way_to_the_json_file(runs: Runs, kind):
    path = runs.path / "special"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(os.devnull)
    done = runs.pytest(f"--benchmark-json={path}")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: *cannot be written: it is *choose another place*"])
    assert os.path.lexists(path)
    assert not path.is_file()
    assert not os.path.lexists(f"{path}.old")
    assert not runs.table("cases")


def test_launch_blocking_is_refused_where_a_gpu_could_be_measured(runs: Runs, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    done = runs.pytest()
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: CUDA_LAUNCH_BLOCKING is set*"])
    assert runs.pytest("--device=cpu", "--family=other").ret == 0


WRONG_FILES = {
    "parameter 'dtype' is <object*object*; parameters of a case are text, numbers or booleans*": """
@pytest.mark.parametrize("dtype", [object()])
def bench_wrong(bench, dtype): pass
""",
    "parameter 'x' is nan*": """
@pytest.mark.parametrize("x", [float("nan")])
def bench_wrong(bench, x): pass
""",
    "core names 'sise'; did you mean 'size'?*": """
@pytest.mark.core(sise=1)
@pytest.mark.parametrize("size", [1])
def bench_wrong(bench, size): pass
""",
    "margin(0,) is not a share above 0 and at most 0.5; write margin(0.1)": """
@pytest.mark.margin(0)
def bench_wrong(bench): pass
""",
    "margin names 'sise'; did you mean 'size'?*": """
@pytest.mark.margin(0.1, size=1)
@pytest.mark.margin(0.2, sise=1)
@pytest.mark.parametrize("size", [1])
def bench_wrong(bench, size): pass
""",
    "MARGIN = '5%' of its file is not a share above 0 and at most 0.5; write 0.05*": """
MARGIN = "5%"
def bench_wrong(bench): pass
""",
    "margin(5,) is not a share above 0 and at most 0.5*": """
@pytest.mark.margin(5)
def bench_wrong(bench): pass
""",
    "MARGIN = 5 of its file is not a share above 0 and at most 0.5; write 0.05 for 5 %": """
MARGIN = 5
def bench_wrong(bench): pass
""",
    "MARGIN = 0 of its file is not a share above 0 and at most 0.5; write 0.05*": """
MARGIN = 0
@pytest.mark.margin(0.1)
def bench_wrong(bench): pass
""",
    "*are both the case made/always; rename one of them*": """
def bench_always(bench): pass
""",
}


@pytest.mark.parametrize("sentence", WRONG_FILES)
def test_a_wrong_benchmark_file_is_refused_by_name(runs: Runs, sentence):
    runs.write(WRONG_FILES[sentence], "bench_wrong")
    done = runs.pytest()
    assert done.ret == 4
    (line,) = [line for line in done.errlines if line.startswith("ERROR")]
    assert "bench_wrong.py::bench_" in line
    assert not runs.table("cases")
    done.stderr.fnmatch_lines([f"ERROR: *{sentence}"])


@pytest.mark.parametrize("strict", [True, False])
def test_a_mistyped_mark_is_answered_with_the_nearest(runs: Runs, strict):
    if not strict:
        ini = runs.path / "pytest.ini"
        ini.write_text(ini.read_text().replace("--strict-markers ", "").replace("filterwarnings = error", ""))
    runs.write("@pytest.mark.coer\ndef bench_marked(bench): pass\n", "bench_marked")
    done = runs.pytest()
    said = "bench_marked.py*: there is no mark 'coer'; did you mean 'core'?*"
    if strict:
        done.stdout.fnmatch_lines([said])
    else:
        done.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert done.ret == (2 if strict else 4)
    assert not (runs.path / "results").exists()  # no run of 0 cases, which a campaign would take for a death


def test_a_wrong_budget_is_refused(runs: Runs):
    runs.write('@pytest.mark.budget("long")\ndef bench_budget(bench): pass\n', "bench_budget")
    done = runs.pytest("-k", "budget")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: *budget('long',) is not a number of seconds; write budget(60)"])


def test_a_plain_suite_is_not_disturbed(runs: Runs, monkeypatch):
    """No run, no file, no word; not even with processes side by side or a fixture of the same name."""
    (runs.path / "bench_made.py").unlink()
    (runs.path / "bench_other.py").unlink()
    (runs.path / "bench_asked.py").unlink()
    runs.write(
        "import pytest\n"
        "@pytest.fixture\n"
        "def bench():\n    return 'mine'\n"
        "@pytest.fixture\n"
        "def gpu(bench):\n    return bench\n"
        "@pytest.mark.parametrize('n', [object(), 1])\n"
        "def test_theirs(bench, gpu, n):\n    assert bench == gpu == 'mine'\n"
        "def test_benchmark(benchmark):\n    benchmark(lambda: None)\n",
        "test_theirs",
        head="",
    )
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")  # as it is: found by its entry point
    monkeypatch.delenv("PYTEST_PLUGINS")
    for options in ((), ("-n", "2")):
        done = runs.pytest(*options, "--require-gpu")
        assert done.parseoutcomes()["passed"] == 4
        done.stdout.no_fnmatch_line("*cuda-gains:*")
    assert not (runs.path / "results").exists()


def test_a_task_of_a_campaign(runs: Runs, monkeypatch):
    task = {"run_id": "abc", "round": "r1", "arm": "here#2", "position": 2, "seed": 7}
    skip = ["bench_other.py::bench_it", "bench_made.py::bench_always"]
    (runs.path / "task.json").write_text(json.dumps(task | {"skip": skip}))
    monkeypatch.setenv("CUDA_GAINS_TASK", str(runs.path / "task.json"))
    runs.pytest()
    (run,) = runs.table("runs")
    assert {name: run[name] for name in ("run_id", "round", "arm", "seed", "position", "stack")} == {
        **task,
        "stack": "here",
    }
    rows = sorted(runs.table("cases"), key=lambda row: row["position"])
    order = [row["case_id"] for row in rows]
    assert set(order) == SMALL
    assert order != sorted(order)
    assert [row["position"] for row in rows] == list(range(len(rows)))
    assert {row["arm"] for row in rows} == {"here#2"}


def test_the_seed_draws_the_order_and_a_rest_keeps_it(runs: Runs, monkeypatch):
    def order(seed: int, skip: tuple[str, ...] = ()) -> list[str]:
        (runs.path / "task.json").write_text(json.dumps({"seed": seed, "skip": skip}))
        monkeypatch.setenv("CUDA_GAINS_TASK", str(runs.path / "task.json"))
        done = runs.pytest("--collect-only", "-q", "bench_made.py", "bench_other.py")
        return [line for line in done.outlines if "::" in line]

    first = order(1)
    assert order(1) == first
    assert sorted(order(2)) == sorted(first)
    assert order(2) != first
    skipped = first[1:4]
    assert order(1, tuple(skipped)) == [item for item in first if item not in skipped]
    files = [item.partition("::")[0] for item in first]
    assert len([k for k in range(1, len(files)) if files[k] != files[k - 1]]) == 1


def test_a_task_that_cannot_be_read_is_refused(runs: Runs, monkeypatch):
    monkeypatch.setenv("CUDA_GAINS_TASK", str(runs.path / "none.json"))
    done = runs.pytest()
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: the task file *none.json of $CUDA_GAINS_TASK cannot be used*"])


def test_options_are_one_group_of_the_help(runs: Runs):
    done = runs.pytest("--help")
    at = done.outlines.index("cuda-gains: what a CUDA upgrade did, measured:")
    shown = "\n".join(done.outlines[at : at + 25])
    for name in (
        "device",
        "require-gpu",
        "family",
        "quick",
        "full",
        "campaign",
        "stack",
        "results",
        "wheels",
    ):
        assert f"--{name}" in shown
    assert "CUDA_GAINS_TASK" not in os.environ


def test_a_stack_that_was_not_created_is_refused_on_the_cpu_too(runs: Runs, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(runs.path / "cache"))
    done = runs.pytest("--stack=cudart-12.4", "--device=cpu")
    assert done.ret == 4
    said = "stack cudart-12.4 is not here; make it with `cuda-gains stacks create cudart-12.4`"
    done.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert not runs.table("runs")
    assert not runs.journals()


def test_a_wrong_result_is_summed_up_by_its_first_words(runs: Runs):
    """As numpy's assertions begin: with an empty line."""
    check = "def check(found):\n    raise AssertionError('\\nNot equal to tolerance 0.1\\n\\nall of it')\n"
    body = f"{check}def bench_a(bench):\n    bench(lambda: 1, timing='host', check=check)\n"
    runs.write(body, "bench_wrong", head='FAMILY = "wrong"\nMARGIN = 0.1\n')
    done = runs.pytest("--family=wrong")
    done.stdout.fnmatch_lines(["nothing was measured: 1 case, 0 measured: Not equal to tolerance 0.1"])
    done.stdout.fnmatch_lines(["FAILED bench_wrong.py::bench_a - Not equal to tolerance 0.1"])


def test_a_run_that_measured_nothing_says_so_and_why(runs: Runs):
    body = "def bench_a(bench, gpu): pass\ndef bench_b(bench, gpu): pass\n"
    runs.write(body, "bench_none", head='FAMILY = "none"\n')
    done = runs.pytest("--device=cpu", "--family=none")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["nothing was measured: 2 cases, 0 measured: no GPU: *"])
    done.stdout.fnmatch_lines(["cuda-gains: no MARGIN in the file of none: 0.05 applies, which is 5 %"])
    assert "nothing was measured" not in runs.pytest("--family=made").stdout.str()


def test_a_family_without_core_cases_is_told_so_under_quick(runs: Runs):
    done = runs.pytest("--quick", "bench_other.py")
    assert done.ret == 5
    said = "1 case of other is not core; leave out --quick, or mark some with pytest.mark.core"
    done.stdout.fnmatch_lines([f"ERROR: {said}"])
    assert said in runs.pytest("--quick").outlines  # beside a family that has some


def test_the_family_of_the_guide_works_as_it_stands(runs: Runs):
    guide = (Path(__file__).parents[1] / "docs" / "add-a-family.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    runs.write(code, "bench_matmul", head="")
    done = runs.pytest("--family", "matmul", "--device", "cpu")
    assert done.ret == 0
    done.stdout.no_fnmatch_line("*no MARGIN*")
    cases = {row["case_id"]: row for row in runs.table("cases")}
    assert {name: row["status"] for name, row in cases.items()} == {
        "matmul/host[n=128]": "ok",
        "matmul/host[n=64]": "ok",
    }
    assert {row["margin"] for row in cases.values()} == {0.05}
    assert cases["matmul/host[n=128]"]["flop"] == 2 * 128**3
    assert "matrix_nbytes" in str(cases["matmul/host[n=128]"])
    assert runs.pytest("--family", "matmul", "--device", "cpu", "--quick").parseoutcomes()["passed"] == 2
