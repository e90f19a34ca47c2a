"""What the doctor gathers: from processes that break in every way, from made-up machines, from this one."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_snapshots import lay

from bench_lib.doctor import checks, children, gather, inside_nvml, inside_python, process
from bench_lib.doctor.finding import State
from bench_lib.doctor.host import available_nbytes, cpu_quota, host, jupyter
from bench_lib.doctor.snapshot import GIB, Snapshot
from bench_lib.doctor.variables import variables
from bench_lib.errors import UsageError
from bench_lib.stacking.environments import Environment
from bench_lib.stacking.stacks import HERE, StackEntry

SOON_SECONDS = 4.0  # until a child that hangs is ended; the others are asked with time to spare
TORCH = """
__version__ = "2.6.0+cu124"
from types import SimpleNamespace
version = SimpleNamespace(cuda="12.4", git_version="abc")
cuda = SimpleNamespace(
    is_available=lambda: True, device_count=lambda: 1, get_device_name=lambda i: "Fake GPU 0",
    get_device_capability=lambda i: (9, 0), get_arch_list=lambda: ["sm_80", "sm_90"],
    nccl=SimpleNamespace(version=lambda: (2, 21, 5)),
)
"""


@pytest.fixture
def torch_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a package torch with this source before every other, for new processes."""

    def write(source: str) -> Path:
        folder = tmp_path / "site" / "torch"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(source)
        paths = [str(folder.parent), os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        return folder

    return write


def found(snapshot: Snapshot, name: str):
    return next(one.finding for one in checks.look(snapshot) if one.check.name == name)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import ctypes\nctypes.string_at(0)", ["was ended by SIGSEGV while importing torch (at"]),
        ("import os\nos.abort()", ["was ended by SIGABRT"]),
        ("import os\nos._exit(3)", ["ended with 3: it said nothing while importing torch"]),
        ("raise SystemExit(1)", ["SystemExit: 1"]),
        (
            "print('x' * 100000)\nraise ImportError('no ncclCommRegister')",
            ["ImportError: no ncclCommRegister"],
        ),
        ("import signal, os\nsignal.signal(15, signal.SIG_IGN)\nos.kill(os.getpid(), 9)", ["SIGKILL"]),
    ],
)
def test_a_torch_that_breaks_is_told_by_how_and_where(torch_is, source, told):
    torch_is(source)
    here = Environment(sys.executable, os.environ)
    answer = children.ask(here, "bench_lib.doctor.inside_torch", "here", timeout_seconds=30.0)
    for words in told:
        assert words in f"{answer.child.story} {answer.facts.get('error', '')}"


def test_a_torch_that_crashes_takes_nothing_else_with_it(torch_is):
    torch_is("import ctypes\nctypes.string_at(0)")
    snapshot = gather.snapshot(HERE)
    assert found(snapshot, "torch-import").state is State.FAIL
    assert "SIGSEGV" in found(snapshot, "torch-import").found
    assert snapshot.python.version  # asked in another process
    assert snapshot.python.distributions
    assert snapshot.python.compilers


def test_a_torch_that_hangs_is_ended_in_time(torch_is):
    torch_is("import time\ntime.sleep(100)")
    begin = time.monotonic()
    finding = found(gather.snapshot(HERE, timeout_seconds=SOON_SECONDS), "torch-import")
    assert time.monotonic() - begin < 90
    assert finding.state is State.FAIL
    assert f"did not answer within {SOON_SECONDS:g} s while importing torch (at" in finding.sentence
    assert "__init__.py:2)" in finding.sentence


def test_what_a_child_leaves_running_is_ended(torch_is, tmp_path):
    torch_is(
        "import os, time\n"
        "child = os.fork()\n"
        "if child == 0: time.sleep(100)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child))\n"
        "os._exit(0)"
    )
    gather.snapshot(HERE, timeout_seconds=20.0)
    pid = (tmp_path / "pid").read_text()
    state = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + 60
    while state.exists() and state.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_on_a_gpu_machine(torch_is, fake_cuda, monkeypatch):
    for name, value in fake_cuda.items():
        monkeypatch.setenv(name, value)
    torch_is(TORCH)
    snapshot = gather.snapshot(HERE, timeout_seconds=20.0)
    (device,) = snapshot.driver.devices
    assert (device.name, device.compute_capability) == ("Fake GPU 0", "9.0")
    assert device.uuid.startswith("GPU-")
    assert snapshot.driver.library.endswith("libcuda.so.1")
    assert (snapshot.driver.cuda, snapshot.cuda) == ("13.0", "12.4")
    assert (snapshot.torch.available, snapshot.torch.count, snapshot.torch.nccl) == (True, 1, "2.21.5")
    assert snapshot.torch.archs == ("sm_80", "sm_90")
    for name in ("gpu", "driver-starts", "driver-version", "torch-sees-gpu", "gpu-code"):
        assert found(snapshot, name).state is State.OK, name


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"FAKE_CUDA_INIT_ERROR": "802"}, "fabric manager"),
        ({"FAKE_CUDA_INIT_ERROR": "999"}, "reload nvidia_uvm"),
        (
            {"FAKE_CUDA_INIT_ERROR": "hang"},
            "did not answer within 4 s while starting the CUDA driver (cuInit)",
        ),
        ({"FAKE_CUDA_INIT_ERROR": "abort"}, "was ended by SIGABRT while starting the CUDA driver (cuInit)"),
    ],
)
def test_a_driver_that_does_not_start(torch_is, fake_cuda, monkeypatch, variables, told):
    for name, value in {**fake_cuda, **variables}.items():
        monkeypatch.setenv(name, value)
    torch_is(TORCH)
    seconds = SOON_SECONDS if "hang" in variables.values() else 30.0
    finding = found(gather.snapshot(HERE, timeout_seconds=seconds), "driver-starts")
    assert finding.state is State.FAIL
    assert told in finding.sentence


def test_this_machine():
    snapshot = gather.of_this_process(HERE)
    assert snapshot.host.kernel == os.uname().release
    assert snapshot.host.cpus == len(os.sched_getaffinity(0))
    assert snapshot.host.available_nbytes > 0
    assert snapshot.host.open_files != 0
    assert snapshot.host.results_free_nbytes > 0


def test_a_stack_that_was_not_created_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    entry = StackEntry("cudart-11.8", "cudart", ("nvidia-cuda-runtime-cu11==11.8.89",), {"cudart": "11.8"})
    with pytest.raises(UsageError, match=r"cuda-gains stacks create cudart-11\.8"):
        gather.snapshot(entry)


def test_an_interpreter_that_is_not_there(tmp_path):
    answer = children.ask(Environment(str(tmp_path / "no"), {}), "x", timeout_seconds=2.0)
    assert answer.child.problem.startswith("cannot be started: No such file")


VERSION = "NVRM version: NVIDIA UNIX {}x86_64 Kernel Module  580.65.06  Sun Jul 27\nGCC version: 13\n"
OPEN = VERSION.replace("{}x86_64 Kernel Module", "Open Kernel Module for x86_64")


def test_a_made_up_machine(tmp_path):
    root = lay(
        tmp_path,
        {
            "proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2\n",
            "proc/driver/nvidia/version": OPEN,
            "proc/77/comm": "nvidia-cuda-mps\n",
            "proc/loadavg": "1.25 0.5 0.1 1/100 4\n",
            "sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "N\n",
            "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
            "sys/bus/pci/devices/0000:02:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:02:00.0/class": "0x068000\n",  # an NVSwitch
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
            "dev/nvidiactl": "",
            "dev/nvidia0": "",
            "dev/nvidia-caps/nvidia-cap1": "",
            "run/.containerenv": "",
        },
    )
    found = host(tmp_path / "results" / "of" / "mine", {}, root)
    assert found.wsl
    assert found.nvidia
    assert (found.pci_gpus, found.module_version, found.module_open) == (1, "580.65.06", True)
    assert (found.hmm_disabled, found.mps, found.load) == ("N", True, 1.25)
    assert found.governor == "performance, powersave"
    assert found.nodes == {"nvidiactl": True, "nvidia0": True, "nvidia-caps": True}
    assert found.container == "podman"
    assert found.results_writable


def test_a_proprietary_module_and_mps_elsewhere(tmp_path):
    root = lay(tmp_path, {"proc/driver/nvidia/version": VERSION.format(""), "pipes/control": ""})
    found = host(tmp_path, {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipes")}, root)
    assert not found.module_open
    assert found.mps
    assert not host(tmp_path, {}, root).mps


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000"}, 1.5),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4.0),
        (
            {
                "proc/self/cgroup": "3:cpuset:/x\n2:cpu,cpuacct:/docker/1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",  # inside the container
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "2:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({"proc/self/cgroup": "garbage\n\n"}, None),
        ({}, None),
    ],
)
def test_how_many_cpus_a_container_may_use(tmp_path, files, quota):
    assert cpu_quota(lay(tmp_path, files)) == quota


def test_memory_is_that_of_the_machine_or_of_the_container(tmp_path):
    root = lay(tmp_path, {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:   {8 << 20} kB\n"})
    assert available_nbytes(root) == 8 * GIB
    lay(root, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": str(4 * GIB)})
    lay(
        root,
        {"sys/fs/cgroup/memory.current": str(3 * GIB), "sys/fs/cgroup/memory.stat": f"inactive_file {GIB}\n"},
    )
    assert available_nbytes(root) == 2 * GIB
    lay(root, {"sys/fs/cgroup/memory.max": "max"})
    assert available_nbytes(root) == 8 * GIB


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
LINE = "   0: {}:{:04X} 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0\n"


@pytest.mark.parametrize(
    ("files", "reach"),
    [
        ({"tcp": LINE.format("0100007F", 8888, "0A")}, "loopback"),
        ({"tcp": LINE.format("00000000", 8888, "0A")}, "anywhere"),
        ({"tcp": LINE.format("0100007F", 8888, "0A"), "tcp6": LINE.format("0" * 32, 8888, "0A")}, "anywhere"),
        ({"tcp": LINE.format("0100007F", 8888, "01")}, ""),  # a connection, not a server
        ({"tcp": LINE.format("00000000", 8080, "0A")}, ""),
        ({}, ""),
    ],
)
def test_who_reaches_jupyter(tmp_path, files, reach):
    root = lay(tmp_path, {f"proc/net/{name}": HEAD + line for name, line in files.items()})
    assert jupyter(root) == reach


def test_a_process_that_is_traced_says_by_whom():
    code = (
        "import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\n"  # PTRACE_TRACEME: by the parent
        "from bench_lib.doctor.process import process\nprint(process().tracer)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(f"(pid {os.getpid()})")


def test_python_hooks_are_named():
    code = (
        "import sys\nfrom bench_lib.doctor.process import process\n"
        "def tracer(*a): return None\nassert process().hooks == ()\n"
        "sys.settrace(tracer)\nprint(process().hooks)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "('__main__',)"


def test_libraries_of_profilers_and_sanitizers_are_found_in_the_memory_map(tmp_path):
    lines = [
        "7f00-7f01 r-xp 00000000 08:01 12    /opt/nvidia/nsight/libToolsInjection64.so",
        "7f00-7f01 r-xp 00000000 08:01 12    /usr/lib/x86_64-linux-gnu/libasan.so.8.0.0",
        "7f00-7f01 r-xp 00000000 08:01 12    /usr/libexec/valgrind/vgpreload_core-amd64-linux.so",
        "7f00-7f01 r-xp 00000000 08:01 12    /site/nvidia/cuda_cupti/lib/libcupti.so.12",  # torch's own
        "7f00-7f01 rw-p 00000000 00:00 0",
    ]
    root = lay(tmp_path, {"proc/self/maps": "\n".join(lines)})
    assert process.mapped(root) == (
        "libToolsInjection64.so",
        "libasan.so.8.0.0",
        "vgpreload_core-amd64-linux.so",
    )


def test_variables_without_secrets():
    word = "0123456789abcdef0123456789abcdef"
    given = {
        "CUDA_LAUNCH_BLOCKING": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_INJECTION64_PATH": f"/store/{word}-nsight/tool.so",  # no secret: it must be told
        "NSYS_SESSION": word,
        "CONDA_PREFIX": "/c",
        "NV_NSIGHT_INJECTION_TOKEN": "abc",
        "HF_TOKEN": "hf_x",
        "HOME": "/root",
    }
    assert variables(given) == {
        "CUDA_LAUNCH_BLOCKING": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_INJECTION64_PATH": f"/store/{word}-nsight/tool.so",
        "NSYS_SESSION": "(hidden)",
        "CONDA_PREFIX": "/c",
    }


def test_conda_packages_and_distributions(tmp_path):
    lay(tmp_path, {f"conda-meta/{name}.json": "{}" for name in ("cuda-cudart-12.4.99-0", "numpy-1.0-0")})
    assert inside_python.conda(tmp_path) == ["cuda-cudart-12.4.99-0"]
    names = {one["name"] for one in inside_python.distributions()}
    assert {"numpy", "pytest", "pytest-benchmark", "pyarrow"} <= names
    assert "rich" not in names


class Failed(Exception):
    pass


def made_up_nvml(state: int, status: int) -> SimpleNamespace:
    """What NVML tells of one GPU in a fabric, and of a second that is lost; it has no other getters."""

    def by_index(index):
        if index:
            raise Failed("lost")
        return "handle"

    def fabric(handle, info):
        info.state, info.status = state, status
        return 0

    return SimpleNamespace(
        NVMLError=Failed,
        c_nvmlGpuFabricInfo_t=lambda: SimpleNamespace(state=0, status=0),
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=by_index,
        nvmlDeviceGetHandleByUUID=lambda uuid: "handle",
        nvmlDeviceGetUUID=lambda handle: "GPU-1",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(free=1, total=2),
        # A process elsewhere, and one that the same parent started, as the doctor its children.
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [
            SimpleNamespace(pid=99999999),
            SimpleNamespace(pid=os.getpid()),
        ],
        nvmlDeviceGetPersistenceMode=lambda handle: 0,
        nvmlDeviceGetGpuFabricInfo=fabric,
    )


@pytest.mark.parametrize(
    ("state", "status", "fabric"),
    [
        (0, 0, ""),
        (1, 0, "not started"),
        (2, 0, "in progress"),
        (3, 0, "completed"),
        (3, 1, "failed"),
        (9, 0, ""),
    ],
)
def test_what_nvml_tells(state, status, fabric):
    (gpu,) = inside_nvml.described(made_up_nvml(state, status))
    assert gpu["fabric"] == fabric
    assert gpu["settings"] == {"persistence": "off"}
    assert (gpu["processes"], gpu["free_nbytes"], gpu["total_nbytes"]) == ([99999999], 1, 2)
