"""cuda-gains doctor as a command; its manual against its checks; secrets; stacks other than this Python."""

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from made_snapshots import HEALTHY, LAPTOP, made
from rich.console import Console

from bench_lib.doctor import checks, page
from bench_lib.doctor.snapshot import Child

ROOT = Path(__file__).parents[1]
MANUAL = (ROOT / "docs/doctor.md").read_text()
NAMES = [check.name for listed in checks.GROUPS.values() for check in listed]
FIELDS = {"name", "group", "state", "found", "expected", "mend"}

# The rows of the trouble tables in the articles that the claims are from, and what else people meet.
TROUBLES = {
    "`torch.cuda.is_available()` is False": "torch-sees-gpu",
    "CUDA driver version is insufficient for CUDA runtime version": "driver-version",
    "`nvidia-smi` shows another CUDA than `torch.version.cuda`": "driver-version",
    "a container without GPU": "gpu",
    "CUDA 11.x and 12.x side by side, LD_LIBRARY_PATH": "search-path",
    "cuDNN of another version": "cudnn-nccl",
    "NCCL fails, hangs, or says undefined symbol": "cudnn-nccl",
    "NCCL or multi-GPU communication is slow": "nccl",
    "errors of P2P transfers": "nccl",
    "`torch.compile` fails": "compiler",
    "`torch.compile` gains nothing": "compiling",
    "no kernel image is available": "gpu-code",
    "out of GPU memory": "gpu-memory",
    "bus error in a data loader": "shared-memory",
    "errors 802, 803, 804, 999": "driver-starts",
    "devices are busy or unavailable": "compute-mode",
    "times differ from run to run": "gpu-clocks",
    "Jupyter cannot be reached": "jupyter",
    "SSH into a container is refused": "",  # a sentence
}


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from bench_lib.cli import main; main()", "doctor", *arguments]
    environment = {**os.environ, "COLUMNS": "100", **variables}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def torch_is(folder: Path, source: str) -> str:
    """A PYTHONPATH on which torch has this source."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(source)
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))


def test_this_machine_as_a_table():
    done = run()
    assert done.returncode in (0, 3)
    assert done.stderr == ""
    first = done.stdout.splitlines()[:5]
    assert [line.split("  ")[0] for line in first] == [
        "torch.cuda.is_available()",
        "torch.cuda.device_count()",
        "name",
        "compute capability",
        "torch.version.cuda",
    ]
    assert ("\n\nno NVIDIA GPU here and no driver of one; " in done.stdout) == (
        not Path("/dev/nvidiactl").exists()
    )
    shown = [re.search(rf"^{name} +(ok|warn|fail) ", done.stdout, re.MULTILINE) for name in NAMES]
    states = Counter(found[1] if found else "not applicable" for found in shown)
    last = done.stdout.splitlines()[-1]
    for state, n in states.items():
        assert f"{n} {state}" in last
    assert last.startswith("stack here: ")
    assert last.endswith(" not applicable (--json lists them)") == ("not applicable" in states)


def test_a_broken_torch_is_exit_code_3_and_every_other_check_is_answered(tmp_path):
    path = torch_is(tmp_path, "raise ImportError('libtorch_cuda.so: undefined symbol: ncclCommRegister')")
    done = run("--json", PYTHONPATH=path)
    assert done.returncode == 3
    answer = json.loads(done.stdout)
    assert (answer["schema"], answer["stack"], answer["exit_code"]) == (1, "here", 3)
    assert [check["name"] for check in answer["checks"]] == NAMES
    assert all(set(check) == FIELDS and check["found"] for check in answer["checks"])
    (broken,) = [check for check in answer["checks"] if check["name"] == "torch-import"]
    assert broken["state"] == "fail"
    assert "ncclCommRegister" in broken["found"]
    assert answer["facts"]["available"] is None


def test_planted_secrets_are_not_printed(tmp_path):
    path = torch_is(tmp_path, "import os\nraise ImportError(' '.join(os.environ.values()))")
    planted = {
        "HF_TOKEN": "hf_abcdefghijklmnop",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIbPxRfiCY",
        "PIP_INDEX_URL": "https://user:hunter2hunter2@example.org/simple",
        "MY_PASSWORD": "correct horse battery",
        "CUDA_INJECTION64_PATH": "/opt/tool.so",
    }
    done = run(PYTHONPATH=path, **planted)
    said = " ".join((done.stdout + done.stderr).split())
    for secret in ("hf_abc", "wJalr", "hunter2", "correct horse"):
        assert secret not in said
    assert "(hidden)" in said
    assert "/opt/tool.so" in said  # which is a cause and no secret


def test_an_unknown_stack_names_the_nearest_and_one_that_is_not_here_its_command(tmp_path):
    done = run("--stack", "cu1244")
    assert (done.returncode, "did you mean 'cu124'?" in done.stderr) == (2, True)
    done = run("--stack", "cu124", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "cuda-gains stacks create cu124" in done.stderr
    assert "Traceback" not in done.stderr


def write_stack(folder: Path, declared: str, activate: str) -> Path:
    (folder / "stack").mkdir()
    (folder / "stack" / "activate").write_text(activate)
    file = folder / "stacks.toml"
    file.write_text(f'["packed"]\nkind = "path"\nfolder = "stack"\ndeclared = {{ {declared} }}\n')
    return file


def test_a_packed_stack_is_looked_at_after_its_activate(tmp_path):
    """Its own torch is asked, and what it declares is held against what was loaded."""
    path = torch_is(
        tmp_path / "stack_site",
        "from types import SimpleNamespace\n__version__ = '2.6.0'\n"
        "version = SimpleNamespace(cuda=None, git_version='')\n",
    )
    file = write_stack(tmp_path, 'torch = "2.7.0"', f"export PYTHONPATH={path}\nexport NCCL_DEBUG=INFO\n")
    done = run("--stack", "packed", "--json", CUDA_GAINS_STACKS=str(file), XDG_CACHE_HOME=str(tmp_path / "c"))
    answer = json.loads(done.stdout)
    found = {check["name"]: check for check in answer["checks"]}
    assert done.returncode == 3
    assert found["torch-import"]["found"].startswith("2.6.0 from")
    assert "declares torch 2.7.0, but 2.6.0 is loaded" in found["promises"]["found"]
    assert "NCCL_DEBUG=INFO" in found["slowing-variables"]["found"]


def test_a_stack_without_torch(tmp_path):
    file = write_stack(tmp_path, 'cudart = "11.8"', "")
    done = run("--stack", "packed", "--json", CUDA_GAINS_STACKS=str(file), XDG_CACHE_HOME=str(tmp_path / "c"))
    answer = json.loads(done.stdout)
    found = {check["name"]: check for check in answer["checks"]}
    assert found["torch-build"]["state"] == "not applicable"
    assert "holds no torch" in found["torch-build"]["found"]
    assert answer["facts"]["cuda"] == "11.8"


def test_a_runtime_alone_by_its_path(tmp_path, fake_wheels):
    """A cudart stack from a wheel: the library is loaded in a child, and says which it is."""
    from_wheels = {"XDG_CACHE_HOME": str(tmp_path)}
    command = [
        sys.executable,
        "-c",
        "from bench_lib.cli import main; main()",
        "stacks",
        "create",
        "cudart-12.4",
    ]
    subprocess.run([*command, "--wheels", str(fake_wheels)], env={**os.environ, **from_wheels}, check=True)
    done = run("--stack", "cudart-12.4", "--json", **from_wheels)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["torch-import"]["found"] == "the stack's libraries load", found["torch-import"]
    assert found["torch-libraries"]["found"] == "cudart 12.4"
    assert found["promises"]["state"] == "ok"
    # What this Python has besides is not part of the stack.
    for name in ("torch-needs", "torchvision", "triton", "cupy"):
        assert found[name]["state"] == "not applicable", found[name]


def test_the_five_facts():
    facts = page.document(HEALTHY, [], {})["facts"]
    assert facts == {
        "available": True,
        "device_count": 2,
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "cuda": "12.4",
    }
    crashed = made(torch=made(LAPTOP, torch__child=Child("was ended by SIGSEGV")).torch)
    facts = page.document(crashed, [], {})["facts"]  # then the driver tells what it can
    assert (facts["available"], facts["name"], facts["cuda"]) == (None, "NVIDIA H200", "12.4")


def test_the_table_says_what_is_expected_and_what_mends_it():
    snapshot = made(gpu__processes=(4711,))
    console = Console(width=100, file=io.StringIO())
    page.show(page.document(snapshot, checks.look(snapshot), {}), console)
    told = r"other-processes +warn +1 \(pid 4711\)\s+expected: none\s+mend: wait for them"
    assert re.search(told, console.file.getvalue())


def test_the_manual_lists_every_check():
    assert page.manual() in MANUAL
    assert len(NAMES) == len(set(NAMES))


def test_the_manual_names_every_field_of_the_json():
    section = MANUAL.partition("## JSON")[2]
    answer = page.document(HEALTHY, checks.look(HEALTHY), {})
    for name in {*answer, *answer["facts"], *answer["checks"][0]}:
        assert f"`{name}`" in section, name
    assert set(answer["checks"][0]) == FIELDS


def test_every_row_of_the_trouble_tables_is_answered():
    section = MANUAL.partition("## From a symptom to its check")[2].partition("\n## ")[0]
    rows = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) >= 2 and set(line) - set("|- "):
            rows[cells[0]] = (re.findall(r"`([a-z0-9-]+)`", cells[1]), cells[-1])
    del rows["symptom"]
    assert set(rows) == set(TROUBLES)
    for symptom, name in TROUBLES.items():
        named, sentence = rows[symptom]
        assert set(named) <= set(NAMES), symptom
        assert name in named if name else sentence, symptom


def test_the_parent_imports_nothing_that_can_break():
    code = (
        "import sys\nfrom bench_lib.doctor import checks, first, gather, page\n"
        "print(sorted({'torch', 'numba', 'cupy', 'pynvml', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
