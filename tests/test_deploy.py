"""The job files of deploy/: the Slurm script in real processes with stand-ins, the Job against its schema."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from plugin_runs import INI

from bench_lib.commands import measuring

DEPLOY = Path(__file__).parents[1] / "deploy"
SCRIPT = DEPLOY / "slurm" / "campaign.sbatch"
BENCH = """
import time
from bench_lib.model import Series
FAMILY = "made"
def bench_a(bench):
    time.sleep(0.5)  # so that both nodes get a round
    bench.record(Series((1.0,)))
"""
# sbatch copies the script and starts a process a task, each on a disk of its own; srun a process group.
SBATCH = """#!{python}
import os, pathlib, re, shutil, subprocess, sys
words = sys.argv[1:]
script = pathlib.Path(next(word for word in words if not word.startswith("-")))
rest = words[words.index(str(script)) + 1:]
spool = pathlib.Path(os.environ["SPOOL"])
first, last = map(int, re.search(r"^#SBATCH --array=(\\d+)-(\\d+)$", script.read_text(), re.M).groups())
tasks = []
for task in range(first, min(last, 1) + 1):
    place = spool / f"slurm_script_{{task}}"
    shutil.copy(script, place)
    (spool / f"node{{task}}").mkdir(exist_ok=True)
    env = dict(os.environ, SLURM_SUBMIT_DIR=os.getcwd(), SLURM_ARRAY_TASK_ID=str(task),
               TMPDIR=str(spool / f"node{{task}}"))
    log = (spool / f"{{task}}.log").open("ab")
    tasks.append(subprocess.Popen(["bash", place, *rest], cwd="/", env=env, stdout=log, stderr=log))
sys.exit(max(task.wait() for task in tasks))
"""
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
exec setsid --wait "$@"
"""
CUDA_GAINS = """#!{python}
import sys
from bench_lib.cli import main
sys.argv[0] = "cuda-gains"
main()
"""


class Cluster:
    """Stand-ins for sbatch and srun in PATH, two stub stacks, a folder that all nodes share."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.shared = home / "shared"
        for name in ("bin", "spool", "benchmarks", "old", "new", "shared"):
            (home / name).mkdir()
        for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("cuda-gains", CUDA_GAINS)):
            place = home / "bin" / name
            place.write_text(text.format(python=sys.executable) if "{python}" in text else text)
            place.chmod(place.stat().st_mode | stat.S_IXUSR)
        for name in ("old", "new"):
            (home / name / "activate").write_text(f"export WHICH={name}\n")
        stack = '[{0}]\nkind = "path"\nfolder = "../{0}"\ndeclared = {{}}\n'
        (home / "benchmarks/stacks.toml").write_text(stack.format("old") + stack.format("new"))
        (home / "benchmarks/pytest.ini").write_text(INI)
        (home / "benchmarks/bench_made.py").write_text(BENCH)

    def submit(self, rounds: int) -> subprocess.CompletedProcess[str]:
        words = ["--stack", "old", "--stack", "new", "--no-null", "--rounds", str(rounds), "--campaign", "c"]
        words += ["--device", "cpu", "--results", f"file://{self.shared}"]
        dropped = ("CUDA_GAINS_STACKS", "XDG_CACHE_HOME", "CUDA_GAINS_CACHE")
        env = {name: value for name, value in os.environ.items() if name not in dropped}
        env |= {"PATH": f"{self.home}/bin:{env['PATH']}", "SPOOL": str(self.home / "spool")}
        return subprocess.run(
            ["sbatch", str(SCRIPT), *words],
            cwd=self.home,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )

    def said(self) -> str:
        return "".join(path.read_text() for path in sorted((self.home / "spool").glob("*.log")))

    def rounds(self) -> list[dict]:
        return [json.loads(path.read_text()) for path in (self.shared / "c/rounds").glob("*.json")]


def test_an_array_of_nodes_measures_the_rounds_of_one_campaign(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    done = cluster.submit(rounds=2)
    assert done.returncode == 0, done.stderr + cluster.said()
    assert len(cluster.rounds()) in (2, 3)  # the nodes may begin the last one together
    runs = {path.stem for path in (cluster.shared / "c/runs").glob("*.parquet")}
    assert {run for this in cluster.rounds() for run in this["runs"]} <= runs
    for node in ("node0", "node1"):  # each measured, on its own disk
        journals = list((tmp_path / "spool" / node).glob("cuda-gains-*/cuda-gains/results/*/c/plan.json"))
        assert journals, cluster.said()
    begin = time.monotonic()
    before = len(cluster.rounds())
    assert cluster.submit(rounds=2).returncode == 0  # the same line again: nothing is left to do
    assert len(cluster.rounds()) == before
    assert time.monotonic() - begin < 60


def test_the_script_asks_for_one_task_a_node_and_hands_its_words_on() -> None:
    text = SCRIPT.read_text()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert (asked["nodes"], asked["ntasks"], asked["exclusive"]) == ("1", "1", "")
    assert {"array", "requeue", "signal"} <= asked.keys()
    assert text.rstrip().endswith('cuda-gains run "$@"')
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0


@pytest.fixture
def job() -> dict:
    return dict(yaml.safe_load((DEPLOY / "kubernetes" / "job.yaml").read_text()))


def test_the_job_is_one_that_kubernetes_takes(job: dict) -> None:
    for version in ("1.33", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(job, version, strict=True)
    wrong = {**job, "spec": {**job["spec"], "completion": 4}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.33", strict=True)


def test_the_job_measures_one_campaign_with_one_pod_a_node(job: dict) -> None:
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", spec["parallelism"])
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["containerName"] == container["name"]


def test_the_words_of_both_are_words_of_the_command(job: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the Job, and those that the README of Slurm shows."""
    import typer
    from typer.testing import CliRunner

    (container,) = job["spec"]["template"]["spec"]["containers"]
    readme = (DEPLOY / "slurm/README.md").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"campaign\.sbatch (--.*)", readme)
    app = typer.Typer()
    app.command()(measuring.run)
    monkeypatch.setattr("bench_lib.running.target.Target.check", lambda _: None)
    plans: list = []
    monkeypatch.setattr("bench_lib.campaigns.campaign.run", lambda plan, _: plans.append(plan) or 0)
    for words in (container["args"], shlex.split(line)):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    assert [(plan.stacks, plan.rounds, plan.device) for plan in plans] == [
        (("native-11.8", "native-12.4"), 20, "cuda")
    ] * 2
