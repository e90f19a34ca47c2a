"""The command `cuda-gains`: its exit codes and its sentences; one of each in a real process."""

import contextlib
import io
import json
import subprocess
import sys
from typing import NamedTuple
from unittest import mock

import pytest
from synthetic import SyntheticCase, write_campaign

from bench_lib import __version__, cli
from bench_lib.model import Case


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def in_a_process(*arguments: object) -> Done:
    code = "import sys; from bench_lib.cli import main; sys.argv[0] = 'cuda-gains'; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def cuda_gains(*arguments: object) -> Done:
    """The same in this process, which has imported everything before."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["cuda-gains", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Campaign `c`: stack `b` is 20 % slower than `a` in one of two cases."""
    folder = tmp_path_factory.mktemp("results")
    slow, alike = Case("launch", "slow"), Case("launch", "alike")
    cases = [SyntheticCase(slow, scale={"b": 1.2}), SyntheticCase(alike)]
    write_campaign(folder, "c", {"a": 1.0, "b": 1.0}, rounds=8, measured=cases)
    return folder


def test_version_and_help_load_nothing_heavy():
    done = in_a_process("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"cuda-gains {__version__}")
    code = (
        "import sys; from bench_lib.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numba', 'pandas', 'scipy', 'duckdb', 'matplotlib'}\n"
        "assert not heavy & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_package_of_an_extra_that_is_missing_is_named_with_the_extra(results):
    code = "import sys; sys.modules['pandas'] = None; from bench_lib.cli import main; main()"
    command = [sys.executable, "-c", code, "compare", "a", "b", "--campaign", "c", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "cuda-gains: pandas is not installed; `pip install -e '.[report]'` in the suite's folder\n"
    )


def test_compare_prints_what_changed(results):
    done = in_a_process("compare", "a", "b", "--campaign", "c", "--results", results)
    assert done.returncode == 0, done.stderr
    assert "2 cases: 0 faster, 1 slower, 1 same" in done.stdout


@pytest.mark.parametrize(("fail_on", "code"), [("slower", 1), ("faster", 0)])
def test_fail_on_decides_the_exit_code(results, fail_on, code):
    done = cuda_gains("compare", "a", "b", "--campaign", "c", "--results", results, "--fail-on", fail_on)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("output", ["json", "csv", "md"])
def test_compare_for_machines(results, output):
    done = cuda_gains("compare", "a", "b", "--campaign", "c", "--results", results, "--format", output)
    assert done.returncode == 0, done.stderr
    assert "launch/slow" in done.stdout
    if output == "json":
        assert json.loads(done.stdout)["baseline"] == "a"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("compare", "a", "b"), "name one that holds a and b: --campaign c\n"),
        (("compare", "a", "x"), "name one that holds a: --campaign c\n"),
        (("compare", "a"), "needs two sides, 1 given"),
        (("compare", "a", "x", "--campaign", "c"), "no stack or arm 'x'"),
        (("compare", "--contrast", "runtime", "--campaign", "c"), "is not PARAMETER=BASELINE:CANDIDATE"),
        (("compare", "a", "b", "--contrast", "p=1:2"), "name one or none"),
        (("compare", "a", "b", "--campaign", "../c"), "characters that a folder name should not have"),
        (("report", "a", "b", "--campaign", "nothing"), "nothing"),
        (("merge", "nothing"), "nothing"),
        (("chart", "launch-by-runtime", "--campaign", "nope"), "no campaign 'nope'"),
        (("report", "a", "b", "--campaign", "c", "-o", "/proc/x"), "/proc/x"),
        (("run", "--stack", "cudart-99", "--rounds", "1"), "cudart-99"),
        (("stacks", "create", "nonesuch"), "nonesuch"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(results, arguments, sentence):
    options = [] if arguments[0] == "stacks" else ["--results", results]
    done = cuda_gains(*arguments, *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_use_in_a_process_has_no_traceback(results):
    done = in_a_process("compare", "a", "x", "--campaign", "c", "--results", results)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"cuda-gains: {cuda_gains_error(results)}\n"


def cuda_gains_error(results):
    done = cuda_gains("compare", "a", "x", "--campaign", "c", "--results", results)
    return done.stderr.removeprefix("cuda-gains: ").rstrip("\n")


def test_report_and_chart_write_their_files(results, tmp_path):
    done = cuda_gains("report", "a", "b", "--campaign", "c", "--results", results, "-o", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r/report.md").exists()
    done = cuda_gains("chart", "launch-by-runtime", "--campaign", "c", "--results", results, "-o", tmp_path)
    assert done.returncode == 2  # there is no runtime to draw
    assert "Traceback" not in done.stderr
