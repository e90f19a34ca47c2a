"""What a run ran on: asked of real files, real processes and real libraries."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_snapshots import lay

from bench_lib.identity import libraries, machine, probe
from bench_lib.stacking.stacks import HERE, StackEntry

CPU = "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\nflags\t\t: fpu vme{}\n"


def test_the_cpu_by_its_name(tmp_path):
    assert machine.cpu_model(lay(tmp_path, {"proc/cpuinfo": CPU})) == "AMD EPYC 9654 96-Core Processor"
    assert machine.cpu_model(tmp_path / "nothing") == os.uname().machine


@pytest.mark.parametrize(
    ("product", "vendor", "expected"),
    [
        ("KVM", "Red Hat", "kvm"),
        ("Standard PC (Q35 + ICH9, 2009)", "QEMU", "qemu"),
        ("m7i.large", "Amazon EC2", "amazon"),
        ("Google Compute Engine", "Google", "google"),
        ("Virtual Machine", "Microsoft Corporation", "microsoft"),
        ("DGXH200", "NVIDIA", "none"),
    ],
)
def test_the_hypervisor_by_its_dmi(tmp_path, product, vendor, expected):
    dmi = {"sys/class/dmi/id/product_name": product, "sys/class/dmi/id/sys_vendor": vendor}
    root = lay(tmp_path, {"proc/cpuinfo": CPU.format(""), **dmi})
    assert machine.virtualisation(root, "6.8.0") == expected


def test_a_hypervisor_without_a_name(tmp_path):
    root = lay(tmp_path, {"proc/cpuinfo": CPU.format(" hypervisor")})
    assert machine.virtualisation(root, "6.8.0") == "vm"
    lay(root, {"proc/cmdline": "console=ttyS0 reboot=k panic=1 pci=off"})
    assert machine.virtualisation(root, "6.8.0") == "firecracker"


@pytest.mark.parametrize("kernel", ["4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016", "4.19.0-gvisor #1"])
def test_gvisor_by_its_kernel(tmp_path, kernel):
    assert machine.virtualisation(tmp_path, kernel) == "gvisor"


def test_nothing_readable_is_bare_metal(tmp_path):
    assert machine.virtualisation(tmp_path, "6.8.0") == "none"
    assert machine.container(tmp_path, {}) == "none"
    assert machine.driver_version(tmp_path) == ""


def test_containers(tmp_path):
    assert machine.container(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "kubernetes"
    assert machine.container(tmp_path, {"APPTAINER_CONTAINER": "/x.sif"}) == "apptainer"
    cgroup = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope"
    assert machine.container(lay(tmp_path / "a", {"proc/1/cgroup": cgroup}), {}) == "kubernetes"
    assert machine.container(lay(tmp_path / "b", {"proc/1/cgroup": "0::/docker/3f"}), {}) == "docker"
    (tmp_path / "b" / ".dockerenv").touch()
    assert machine.container(tmp_path / "b", {}) == "docker"
    assert machine.container(lay(tmp_path / "c", {"run/containerenv": ""}), {}) == "none"
    lay(tmp_path / "c", {"run/.containerenv": ""})
    assert machine.container(tmp_path / "c", {}) == "podman"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 2024",
            "535.183.01",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", "580.95.05"),
    ],
)
def test_the_driver_version(tmp_path, text, version):
    root = lay(tmp_path, {"proc/driver/nvidia/version": f"{text}\nGCC version: gcc 13.2.0\n"})
    assert machine.driver_version(root) == version


def test_this_machine():
    facts = machine.facts()
    assert facts["kernel"] == os.uname().release
    assert facts["cpu.count"] == str(os.cpu_count())
    assert facts["host"]
    assert facts["virtualisation"]
    assert all(isinstance(value, str) and value for value in facts.values())


def test_the_environment_is_an_allow_list():
    variables = {
        "CUDA_VISIBLE_DEVICES": "GPU-3f5a1c9e-0000-1111-2222-333344445555",
        "CUDA_MODULE_LOADING": "EAGER",
        "NCCL_ALGO": "Ring",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/x",
        "OMP_NUM_THREADS": "4",
        "NVIDIA_TF32_OVERRIDE": "0",
        "NVIDIA_REQUIRE_CUDA": "cuda>=13.0 brand=tesla,driver>=535",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/opt/nccl",
        "HOME": "/home/me",
        "PATH": "/usr/bin",
        "CUDA_GAINS_TASK": "/tmp/task.json",
        "TORCH_API_TOKEN": "abc",
        "NCCL_AUTH": "x",
        "PYTORCH_INDEX": "https://me:word@host/simple",
        "TORCH_LOGIN": "hf0123456789abcdefABCDEF0123456789ab",
    }
    assert set(probe.environment(variables)) == {
        "env.CUDA_VISIBLE_DEVICES",
        "env.CUDA_MODULE_LOADING",
        "env.NCCL_ALGO",
        "env.NVIDIA_TF32_OVERRIDE",
        "env.OMP_NUM_THREADS",
        "env.LD_LIBRARY_PATH",
    }


def in_child(code, **environment):
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return json.loads(done.stdout)


REPORT = """
import ctypes, json, os, sys
from pathlib import Path
from bench_lib.identity import probe
from bench_lib.stacking.stacks import HERE, StackEntry
for path in sys.path_to_load:
    ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
kind = StackEntry(sys.stack_name, "cudart") if sys.stack_name != "here" else HERE
print(json.dumps(probe.identity(kind).stack))
"""


def stack_facts(paths, stack="here", **environment):
    head = f"import sys; sys.path_to_load = {[str(p) for p in paths]!r}; sys.stack_name = {stack!r}\n"
    return in_child(head + REPORT, **environment)


@pytest.fixture
def runtimes(fake_cuda, fake_wheels, tmp_path):
    """An environment, and its cache holding two runtimes."""
    code = (
        "import json; from pathlib import Path; from bench_lib.stacking.stacks import *;"
        "pins = {'11.8': 'nvidia-cuda-runtime-cu11==11.8.89', '12.4': 'nvidia-cuda-runtime-cu12==12.4.127'};"
        f"wheels = Path({str(fake_wheels)!r});"
        "print(json.dumps({v: str(cached_library(StackEntry('cudart-' + v, 'cudart', (r,)), wheels)) "
        "for v, r in pins.items()}))"
    )
    changed = {k: v for k, v in fake_cuda.items() if os.environ.get(k) != v}
    return changed, in_child(code, **changed)


def test_the_runtime_of_a_cudart_stack_is_the_cached_one(runtimes):
    environment, cached = runtimes
    facts = stack_facts(cached.values(), "cudart-12.4", **environment)
    assert facts["cudart.version"] == "12.4"
    assert facts["cudart.path"] == cached["12.4"]
    assert facts["cudart.sha256"] == hashlib.sha256(Path(cached["12.4"]).read_bytes()).hexdigest()


def test_runtimes_a_case_loads_by_path_are_not_the_stack_here(runtimes, tmp_path):
    environment, cached = runtimes
    copy = tmp_path / "null" / "libcudart.so.11.0"
    copy.parent.mkdir()
    copy.write_bytes(Path(cached["11.8"]).read_bytes())
    own = next(Path(environment["PYTHONPATH"]).rglob("libcudart.so.13"))
    facts = stack_facts([*cached.values(), copy], **environment)
    assert "cudart.version" not in facts
    facts = stack_facts([*cached.values(), copy, own], **environment)
    assert facts["cudart.version"] == "13.0"
    assert facts["cudart.path"] == str(own)


def test_the_real_libraries_say_their_versions():
    """NVIDIA's own wheels, where they are installed: no GPU is needed to ask a version."""
    patterns = ("libcublas.so.*", "libcudnn.so.*", "libnvrtc.so.*")
    places = [place for p in sys.path if (place := Path(p) / "nvidia").is_dir()]
    if not all(any(any(place.rglob(pattern)) for place in places) for pattern in patterns):
        pytest.skip("the CUDA libraries of torch are not installed here")
    code = "import torch, json; from bench_lib.identity import libraries;"
    code += "from bench_lib.stacking.stacks import HERE;"
    code += "print(json.dumps({k: v for k, v in libraries.facts(HERE).items() if k.endswith('version')}))"
    facts = in_child(code)
    assert int(facts["cublas.version"].split(".")[0]) >= 11
    assert int(facts["cudnn.version"].split(".")[0]) >= 8
    assert facts["cudart.version"].count(".") == 1
    assert facts["nccl.version"].startswith("2.")


def test_hashes_are_remembered_by_path_size_and_time(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "lib.so"
    file.write_bytes(b"one")
    assert libraries.sha256(file) == hashlib.sha256(b"one").hexdigest()
    stored = tmp_path / "cache" / "cuda-gains" / "sha256.json"
    known = json.loads(stored.read_text())
    stored.write_text(json.dumps(dict.fromkeys(known, "remembered")))
    assert libraries.sha256(file) == "remembered"
    file.write_bytes(b"three")
    assert libraries.sha256(file) == hashlib.sha256(b"three").hexdigest()


def test_an_unreadable_file_or_cache_fails_nothing(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "lib.so").write_bytes(b"one")
    assert libraries.sha256(tmp_path / "lib.so") == hashlib.sha256(b"one").hexdigest()
    assert libraries.sha256(tmp_path / "gone.so") == ""
    assert libraries.mapped(tmp_path / "no-maps") == {}


def test_what_is_mapped_is_read_again_once_the_loader_has_worked(runtimes):
    environment, cached = runtimes
    code = (
        "import ctypes, json; from bench_lib.identity import libraries\n"
        "found = [libraries.mapped_now(), libraries.mapped_now()]\n"
        f"ctypes.CDLL({cached['12.4']!r})\n"
        "found += [libraries.mapped_now(), libraries.mapped_now()]\n"
        "same = [one is next_one for one, next_one in zip(found, found[1:])]\n"
        "print(json.dumps([same, found[1].get('cudart'), [str(p) for p in found[3]['cudart']]]))"
    )
    assert in_child(code, **environment) == [[True, False, True], None, [cached["12.4"]]]


def test_a_damaged_cache_is_started_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "cuda-gains").mkdir()
    (tmp_path / "cuda-gains" / "sha256.json").write_text("[1, 2")
    (tmp_path / "lib.so").write_bytes(b"one")
    assert libraries.sha256(tmp_path / "lib.so") == hashlib.sha256(b"one").hexdigest()


def git(folder, *arguments):
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_of_a_checkout_and_its_dirt(tmp_path):
    package = tmp_path / "repo" / "package"
    lay(package, {"__init__.py": ""})
    git(tmp_path / "repo", "init", "-q")
    assert probe.suite_commit(package) == ""
    git(tmp_path / "repo", "add", ".")
    git(tmp_path / "repo", "commit", "-qm", "one")
    head = git(tmp_path / "repo", "rev-parse", "HEAD")
    assert probe.suite_commit(package) == head
    lay(package, {"__init__.py": "changed"})
    assert probe.suite_commit(package) == f"{head}+dirty"


def test_an_installed_package_inside_a_checkout_has_no_commit(tmp_path):
    git_folder = lay(tmp_path / "repo", {"readme": ""})
    git(git_folder, "init", "-q")
    git(git_folder, "add", ".")
    git(git_folder, "commit", "-qm", "one")
    installed = lay(git_folder / "venv" / "bench_lib", {"__init__.py": ""})
    assert probe.suite_commit(installed) == ""
    assert probe.suite_commit(tmp_path / "nowhere") == ""


def test_identity_without_a_gpu():
    found = probe.identity(HERE, settings={"module_loading": "lazy"}, quantities={"x_seconds": 1.0})
    assert found.stack["python.version"] == sys.version.split()[0]
    assert found.settings["module_loading"] == "lazy"
    assert found.quantities == {"x_seconds": 1.0}
    assert not any(key.startswith("gpu.") for key in found.machine)


def test_probing_imports_no_library_of_its_own():
    code = (
        "import sys, json; from bench_lib.identity import probe; from bench_lib.stacking.stacks import HERE\n"
        "probe.identity(HERE)\n"
        "heavy = {'torch', 'cupy', 'numba', 'triton', 'pandas', 'pynvml'}\n"
        "print(json.dumps(sorted(set(sys.modules) & heavy)))"
    )
    assert in_child(code) == []


def test_an_unknown_stack_kind_keeps_what_is_mapped():
    entry = StackEntry("native-12.4", "native")
    assert libraries.belonging("cudnn", [Path("/x/libcudnn.so.9")], entry) == [Path("/x/libcudnn.so.9")]
