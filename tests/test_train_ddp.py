"""The example script: two ranks under torchrun, and on from its checkpoint."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = Path(__file__).parents[1] / "docs" / "examples" / "train_ddp.py"


# The script, and then the names of gloo's threads that its group has left behind.
AND_LOOK = """
import runpy, sys
from pathlib import Path
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
print("left:", [name for name in names if "gloo" in name])
"""


def run(command: list[str], **environment: str) -> str:
    known = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment}
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "destroy_process_group" not in done.stderr  # torch warns where a group was left behind
    return done.stdout


def test_two_ranks_train_and_one_goes_on_from_their_checkpoint(tmp_path):
    options = [str(SCRIPT), "--images", "512", "--checkpoint", str(tmp_path / "trained.pt")]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

    first, second = map(
        float, re.findall(r"epoch \d: loss (\S+)", run([*torchrun, *options, "--epochs", "2"]))
    )
    assert second < 0.7 * first < 2.5  # ten classes: ln 10 is 2.3
    state = torch.load(tmp_path / "trained.pt", weights_only=True)
    assert state["epoch"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["trained.pt"]

    alone = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    told = run([sys.executable, "-c", AND_LOOK, *options, "--epochs", "3", "--amp"], **alone)
    assert re.fullmatch(r"goes on after epoch 2\nepoch 3: loss (\S+)\nleft: \[\]\n", told)
    assert float(told.split()[8]) < second


def test_torchrun_knows_every_option_of_the_lines_for_several_machines():
    from torch.distributed.run import get_args_parser

    text = (SCRIPT.parents[2] / "deploy" / "torchrun" / "README.md").read_text()
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("torchrun ")]
    assert len(lines) == 5
    for words in lines:
        asked = get_args_parser().parse_args(words)
        assert asked.training_script in ("docs/examples/train_ddp.py", "pytest")
        assert asked.module == (asked.training_script == "pytest")
    assert asked.training_script_args[:3] == ["benchmarks", "--family", "allreduce"]
