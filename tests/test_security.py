"""Results are data: nothing in them is run, none of them leaves its folder, no secret gets into them."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_runs import Runs

from bench_lib.errors import DataError, UsageError
from bench_lib.identity import probe
from bench_lib.layout import CampaignFolder
from bench_lib.stacking.stacks import StackEntry, load_stacks

ROOT = Path(__file__).parents[1]
CODE = sorted([*(ROOT / "bench_lib").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")])
RUNS_DATA = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "jsonpickle"}
EVALUATES = {"eval", "exec", "compile", "__import__"}


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    """Every call by its dotted name."""
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_unpickled_evaluated_or_given_to_a_shell(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.partition(".")[0] for name in names} & RUNS_DATA
    for name, call in calls(tree):
        assert name not in EVALUATES
        assert name not in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")
        assert name != "torch.load"
        options = {keyword.arg: keyword.value for keyword in call.keywords}
        if name in ("np.load", "numpy.load"):
            assert "allow_pickle" not in options
        shell = options.get("shell")
        assert shell is None or (isinstance(shell, ast.Constant) and shell.value is False)


@pytest.mark.parametrize(
    "name", ["..", "../x", "/etc", "a/b", "a\\b", ".hidden", "a\nb", "", "x" * 200, "a\0b", "x."]
)
def test_no_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        CampaignFolder(tmp_path, name)
    (tmp_path / "stacks.toml").write_text(f"[{name.encode('unicode_escape').decode()!r}]\nkind = 'here'\n")
    with pytest.raises(UsageError):
        load_stacks(tmp_path / "stacks.toml")


def test_a_run_id_of_a_task_cannot_leave_the_folder(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(pytester, monkeypatch)
    runs.write("def bench_a(bench):\n    bench.record(Series((1.0,)))\n")
    (runs.path / "task.json").write_text('{"run_id": "../../../outside"}')
    monkeypatch.setenv("CUDA_GAINS_TASK", str(runs.path / "task.json"))
    assert runs.pytest().ret == 4
    assert not list(runs.path.parent.glob("outside*"))


def test_stacks_fetch_only_what_their_file_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The requirements given to pip are the pins of the stacks file, and they are no options of pip."""
    entries = load_stacks(ROOT / "benchmarks" / "stacks.toml")
    pins = [pin for entry in entries.values() for pin in entry.requirements]
    assert pins
    assert not [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.+]+", pin)]
    for bad in (
        "--index-url=https://elsewhere",
        "-r other.txt",
        "git+https://elsewhere/x",
        "x @ https://e/x",
    ):
        (tmp_path / "stacks.toml").write_text(f'[a]\nkind = "cudart"\nrequirements = ["{bad}"]\n')
        with pytest.raises((UsageError, DataError)):
            load_stacks(tmp_path / "stacks.toml")
    assert isinstance(next(iter(entries.values())), StackEntry)


SECRETS = {
    "HF_TOKEN": "hf_planted0secret0one0000000000000000",
    "AWS_SECRET_ACCESS_KEY": "planted/secret+two/000000000000000000000",
    "PIP_INDEX_URL": "https://user:plantedthree@index.example/simple",
    "HTTPS_PROXY": "http://user:plantedfour@proxy.example:3128",
    "WANDB_API_KEY": "plantedfive5planted5five5planted5five555",
    # in variables that are stored, because they can move a number
    "CUDA_CACHE_URL": "https://user:plantedsix@cache.example",
    "TORCH_TOKEN": "plantedseven",
    "PYTORCH_API_KEY": "plantedeight",
    "NCCL_PASSWORD": "plantednine",
    "TRITON_STORE": "redis://:plantedten@store.example:6379",
    "TORCHINDUCTOR_REMOTE": "plantedeleven1plantedeleven1planted1eleven",
    "LD_PRELOAD_KEY": "plantedtwelve",
    "NCCL_SOCKET": "host=a password=plantedthirteen",
}
MARKS = ("planted", "secret+two")


def everything(folder: Path) -> dict[str, bytes]:
    """All files, Parquet ones as text too: their pages are compressed."""
    import pyarrow.parquet as pq

    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
        if path.suffix == ".parquet":
            found[f"{path.name} as text"] = str(pq.read_table(path).to_pylist()).encode()
    return found


def test_secrets_of_the_environment_reach_nothing_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A campaign, its results, its JSON, its logs, a comparison and a report: none holds a planted one."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    made = tmp_path / "made"
    made.mkdir()
    (made / "pytest.ini").write_text("[pytest]\npython_files = bench_*.py\npython_functions = bench_*\n")
    (made / "bench_made.py").write_text(
        "import os\nfrom bench_lib.model import Series\nFAMILY = 'made'\n"
        "def bench_a(bench):\n    bench.record(Series((1.0, 2.0)))\n"
        "def bench_changes(bench):\n    bench.record(Series((1.0,)))\n    del os.environ['HF_TOKEN']\n"
        "def bench_leaves(bench):\n    import subprocess, sys\n    bench.record(Series((1.0,)))\n"
        "    sleep = [sys.executable, '-c', 'import time; time.sleep(9)']\n"
        "    subprocess.Popen([*sleep, os.environ['WANDB_API_KEY']])\n"
        "def bench_fails(bench):\n    raise RuntimeError('no answer of ' + os.environ['PIP_INDEX_URL'])\n"
    )
    command = "import sys; from bench_lib.cli import main; sys.argv[0] = 'cuda-gains'; main()"

    def cuda_gains(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-c", command, *words]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)

    for campaign in ("before", "after"):
        done = cuda_gains(
            "run", "--stack", "here", "--rounds", "1", "--no-null", "--device", "cpu",
            "--benchmarks", "made", "--campaign", campaign,
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
        assert "no answer of" in done.stderr
        assert not [mark for mark in MARKS if mark in done.stdout + done.stderr]
    plain = [sys.executable, "-m", "pytest", "made", "-q", "--benchmark-json=out/run.json", "--device=cpu"]
    plain.append(f"--deselect={SECRETS['PIP_INDEX_URL']}")  # the command line is stored too
    subprocess.run(plain, cwd=tmp_path, capture_output=True, check=False, timeout=300)
    assert (tmp_path / "out" / "run.json").exists()
    done = cuda_gains("report", "before/here", "after/here", "-o", "report")
    assert done.returncode == 0, done.stderr
    files = everything(tmp_path)
    assert any(name.startswith("report/") for name in files)
    assert any(name.endswith(".log") for name in files)
    assert any("as text" in name for name in files)
    held = {
        name: mark for name, content in files.items() for mark in MARKS
        if mark.encode() in content and not name.startswith("made/")
    }  # fmt: skip
    assert held == {}


def test_what_moves_a_number_is_kept_all_the_same() -> None:
    kept = probe.environment({"CUDA_VISIBLE_DEVICES": "0", "NCCL_ALGO": "Ring", **SECRETS})
    assert kept == {"env.CUDA_VISIBLE_DEVICES": "0", "env.NCCL_ALGO": "Ring"}
