"""Each check of the doctor on a healthy machine, and with each fault that it is there for."""

from typing import Any

import pytest
from made_snapshots import (
    ATTRIBUTES,
    DEVICE,
    GPU,
    HEALTHY,
    INSTALLED,
    LAPTOP,
    LIBRARIES,
    SITE,
    dist,
    library,
    made,
)

from bench_lib.doctor import checks
from bench_lib.doctor.finding import Finding, State
from bench_lib.doctor.snapshot import GIB, Child, CudaDriver, Device, Library, Nvml, Process, Snapshot

LIST = {check.name: check for listed in checks.GROUPS.values() for check in listed}
GPU_OF = dict(GPU.settings)
NOTHING = CudaDriver(library="/usr/lib/libcuda.so.1", cuda="13.0")


def error(code: int) -> CudaDriver:
    return CudaDriver(library="/usr/lib/libcuda.so.580.65.06", cuda="13.0", code=code, error=f"cuInit {code}")


def device(capability: str, name: str = "GPU", uuid: str = "GPU-1", **attributes: int) -> tuple[Device, ...]:
    return (Device(uuid, name, capability, {**ATTRIBUTES, **attributes}),)


def without(*names: str) -> tuple[Any, ...]:
    return tuple(one for one in INSTALLED if one.name not in names)


def look(name: str, snapshot: Snapshot) -> Finding:
    return LIST[name].look(snapshot)


FAIL, WARN, OK, ABSENT = State.FAIL, State.WARN, State.OK, State.NOT_APPLICABLE

# check, what is changed on the healthy machine, state, what is found (and said to mend it)
FAULTS: list[tuple[str, dict[str, Any], State, list[str]]] = [
    ("gpu", {"driver": NOTHING, "variables": {"CUDA_VISIBLE_DEVICES": ""}}, FAIL, ["unset CUDA_VISIBLE"]),
    ("gpu", {"driver": NOTHING, "variables": {"CUDA_VISIBLE_DEVICES": "-1"}}, FAIL, ["hides every GPU"]),
    ("gpu", {"driver": NOTHING, "host__nodes": {}, "host__container": "docker"}, FAIL, ["--gpus all"]),
    (
        "gpu",
        {"driver": NOTHING, "host__nodes": {}, "host__container": "kubernetes"},
        FAIL,
        ["nvidia.com/gpu"],
    ),
    ("gpu", {"driver": NOTHING, "host__nodes": {}, "host__container": "lxc"}, FAIL, ["the host's GPUs"]),
    ("gpu", {"driver": NOTHING, "host__module_version": ""}, FAIL, ["no NVIDIA driver loaded", "modprobe"]),
    ("gpu", {"driver": NOTHING}, FAIL, ["see driver-starts"]),
    ("gpu", {"driver": error(802), "host__nodes": {}, "host__container": "docker"}, FAIL, ["does not start"]),
    ("driver-library", {"driver": CudaDriver()}, FAIL, ["cannot be loaded", "compute,utility"]),
    ("driver-library", {"driver__library": "/usr/local/cuda/lib64/stubs/libcuda.so"}, FAIL, ["stub"]),
    ("driver-library", {"driver__library": "/usr/local/cuda/compat/libcuda.so.1"}, WARN, ["compat", "804"]),
    (
        "driver-starts",
        {"driver__child": Child("did not answer within 30 s", "starting")},
        FAIL,
        ["did not", "Xid"],
    ),
    ("driver-starts", {"driver": error(802)}, FAIL, ["fabric manager", "systemctl restart"]),
    ("driver-starts", {"driver": error(803)}, FAIL, ["different versions", "reboot"]),
    ("driver-starts", {"driver": error(804)}, FAIL, ["only data-centre GPUs", "cuda-compat"]),
    ("driver-starts", {"driver": error(999)}, FAIL, ["unknown error", "nvidia_uvm"]),
    ("driver-starts", {"driver": error(100)}, FAIL, ["no device"]),
    ("driver-starts", {"driver": error(101)}, FAIL, ["not there", "nvidia-smi -L"]),
    ("driver-starts", {"driver": error(304)}, FAIL, ["/dev/nvidia"]),
    ("driver-starts", {"driver": error(46)}, FAIL, ["for itself"]),
    ("driver-starts", {"driver": error(34)}, FAIL, ["stub"]),
    ("driver-starts", {"driver": error(805)}, FAIL, ["MPS", "nvidia-cuda-mps-control"]),
    ("driver-starts", {"driver": error(808)}, FAIL, ["no room"]),
    ("driver-starts", {"driver": error(777)}, FAIL, ["cuInit 777", "dmesg"]),
    ("driver-starts", {"driver": NOTHING}, FAIL, ["shows no device"]),
    ("driver-match", {"host__module_version": "575.57.08"}, FAIL, ["libcuda 580.65.06", "reboot"]),
    (
        "driver-match",
        {"host__module_version": "535.104.05", "driver__library": "/cuda/compat/libcuda.so.550.54.14"},
        WARN,
        ["libcuda 550.54.14"],
    ),
    ("kernel-module", {"driver__devices": device("10.0"), "host__module_open": False}, FAIL, ["open kernel"]),
    ("kernel-module", {"driver__devices": device("7.0")}, FAIL, ["proprietary"]),
    ("device-nodes", {"host__nodes": {"nvidiactl": True, "nvidia0": True}}, FAIL, ["no /dev/nvidia-uvm"]),
    ("device-nodes", {"host__nodes": {"nvidiactl": True, "nvidia-uvm": True}}, FAIL, ["no /dev/nvidia0"]),
    (
        "device-nodes",
        {"host__nodes": {"nvidiactl": True, "nvidia-uvm": True, "nvidia0": False, "nvidia-caps": False}},
        FAIL,
        ["/dev/nvidia0 cannot be opened"],
    ),
    (
        "device-nodes",
        {"host__nodes": {"nvidiactl": True, "nvidia-uvm": True, "nvidia0": True}},
        WARN,
        ["nvidia-caps", "NVLS"],
    ),
    ("nvml", {"nvml": Nvml(error="NVMLError: no")}, WARN, ["NVMLError", "nvidia-ml-py"]),
    ("nvml", {"nvml": Nvml(Child("was ended by SIGSEGV", "loading NVML"))}, WARN, ["SIGSEGV while loading"]),
    ("hmm", {"driver__devices": device("9.0", concurrent_managed_access=0)}, WARN, ["does not move by page"]),
    ("hmm", {"driver": error(999)}, WARN, ["HMM is on", "uvm_disable_hmm=1"]),
    ("fabric-manager", {"driver": error(802)}, FAIL, ["not ready", "nvidia-fabricmanager"]),
    (
        "fabric-manager",
        {"gpu__fabric": "not started", "host__nodes": {"nvidia-nvswitch0": True, "nvidia-nvswitchctl": True}},
        FAIL,
        ["1 NVSwitches, fabric not started"],
    ),
    ("fabric-manager", {"gpu__fabric": "in progress"}, WARN, ["in progress"]),
    ("persistence", {"gpu__settings": {**GPU_OF, "persistence": "off"}}, WARN, ["off", "nvidia-smi -pm 1"]),
    ("ecc", {"gpu__settings": {**GPU_OF, "ecc": "off"}}, WARN, ["off", "both sides"]),
    (
        "mig",
        {"driver__devices": device("9.0", "H200 MIG 1g.18gb", "MIG-1")},
        WARN,
        ["H200 MIG 1g.18gb is a slice"],
    ),
    ("mig", {"gpu__settings": {**GPU_OF, "mig_mode": "on"}}, FAIL, ["no slice", "-mig 0"]),
    ("mps", {"host__mps": True}, WARN, ["daemon", "quit"]),
    ("compute-mode", {"gpu__settings": {**GPU_OF, "compute_mode": "prohibited"}}, FAIL, ["nvidia-smi -c 0"]),
    ("compute-mode", {"gpu__settings": {**GPU_OF, "compute_mode": "exclusive-process"}}, WARN, ["busy"]),
    ("other-processes", {"gpu__processes": (11, 12)}, WARN, ["2 (pid 11, 12)", "disturb"]),
    ("gpu-memory", {"gpu__free_nbytes": GIB}, WARN, ["1.0 of 140.0 GiB free"]),
    (
        "gpu-clocks",
        {"gpu__throttle_reasons": ("hw-thermal", "sw-power-cap")},
        WARN,
        ["hw-thermal, sw-power-cap"],
    ),
    ("gpu-clocks", {"gpu__throttle_reasons": ("applications-clocks",)}, WARN, ["nvidia-smi -rac"]),
    ("torch-import", {"torch__child": Child("was ended by SIGSEGV", "importing torch")}, FAIL, ["SIGSEGV"]),
    (
        "torch-import",
        {
            "torch__error": "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister",
            "shadowing": "LD_LIBRARY_PATH holds /usr/lib/libnccl.so.2, a second one; take it out",
        },
        FAIL,
        ["ncclCommRegister", "LD_LIBRARY_PATH holds /usr/lib/libnccl.so.2"],
    ),
    ("torch-build", {"torch__cuda": ""}, FAIL, ["built for the CPU"]),
    (
        "torch-sees-gpu",
        {"torch__available": False, "torch__said": "driver too old"},
        FAIL,
        ["False (driver too"],
    ),
    ("torch-sees-gpu", {"torch__available": False, "driver": NOTHING}, FAIL, ["see driver-version"]),
    ("gpu-code", {"torch__archs": ("sm_80", "compute_80")}, WARN, ["only PTX", "CUDA_CACHE_MAXSIZE"]),
    ("gpu-code", {"torch__archs": ("sm_50", "sm_80")}, FAIL, ["no kernel image", "a newer torch"]),
    (
        "gpu-code",
        {"driver__devices": device("7.0"), "torch__archs": ("sm_75", "sm_90")},
        FAIL,
        ["an older torch"],
    ),
    ("gpu-code", {"driver__devices": device("10.3"), "torch__archs": ("sm_100a",)}, FAIL, ["10.3"]),
    (
        "torch-libraries",
        {"torch__libraries": {**LIBRARIES, "nvrtc": library("nvrtc", "13.0")}},
        FAIL,
        ["nvrtc 13.0 from", "nvrtc of CUDA 12"],
    ),
    (
        "torch-libraries",
        {"torch__libraries": {"cudart": library("cudart", "12.4") + library("cudart", "12.6", "/usr/lib")}},
        WARN,
        ["loaded 2 times"],
    ),
    (
        "library-places",
        {"torch__libraries": {"cudnn": library("cudnn", "9.1.0", "/usr/local/cuda/lib64")}},
        WARN,
        ["/usr/local/cuda/lib64/libcudnn.so.9 was loaded", "shadows nvidia-cudnn-cu12 9.1.0.70"],
    ),
    (
        "cudnn-nccl",
        {"torch__libraries": {"cudnn": library("cudnn", "8.9.2")}},
        WARN,
        ["cudnn 8.9.2", "9.1.0.70"],
    ),
    ("cudnn-nccl", {"torch__built": {"nccl": "11.8"}}, FAIL, ["built for CUDA 11.8", "one for CUDA 12"]),
    ("cudnn-nccl", {"torch__nccl": "2.28.9"}, WARN, ["NCCL 2.21.5", "2.28.9, which torch was compiled with"]),
    (
        "torch-parts",
        {"torch__unresolved": ("libcaffe2_nvrtc.so: no libnvrtc.so.12",)},
        FAIL,
        ["libnvrtc.so.12"],
    ),
    (
        "torch-needs",
        {"python__distributions": without("nvidia-cudnn-cu12")},
        WARN,
        ["cudnn-cu12 is not inst"],
    ),
    (
        "torch-needs",
        {"python__distributions": without("nvidia-cudnn-cu12"), "torch__version": ""},
        FAIL,
        ["pip install 'nvidia-cudnn-cu12==9.1.0.70'"],
    ),
    (
        "torch-needs",
        {"python__distributions": (*without("triton"), dist("triton", "3.5.1"))},
        WARN,
        ["triton 3.5.1", "triton==3.2.0"],
    ),
    (
        "torchvision",
        {"python__distributions": (*without("torchvision"), dist("torchvision", "0.18.0", "torch==2.3.0"))},
        FAIL,
        ["torchvision 0.18.0 and torch 2.6.0", "torch==2.3.0"],
    ),
    (
        "torchvision",
        {
            "python__distributions": (
                dist("torch", "2.6.0+cu124"),
                dist("torchvision", "0.21.0+cu118", "torch==2.6.0"),
            )
        },
        FAIL,
        ["different CUDA"],
    ),
    (
        "promises",
        {
            "stack": "cu124",
            "torch__broken": "stack cu124 declares cudnn 9.1.0, but 8.9 is loaded; correct it",
        },
        FAIL,
        ["8.9 is loaded", "correct it"],
    ),
    (
        "mixed-wheels",
        {"mixed_wheels": "S holds wheels of CUDA 11 and 12, expected one CUDA major; make it anew"},
        FAIL,
        ["11 and 12", "one CUDA major", "make it anew"],
    ),
    ("search-path", {"shadowing": "LD_LIBRARY_PATH holds X; take X out"}, WARN, ["holds X", "take X out"]),
    (
        "conda",
        {"python__conda": ("cuda-cudart-12.4.99",)},
        WARN,
        ["cuda-cudart-12.4.99 beside pip's nvidia-cudnn-cu12"],
    ),
    (
        "duplicates",
        {"python__distributions": (*INSTALLED, dist("torch", "2.3.0", folder="/home/u/.local"))},
        WARN,
        [f"torch 2.6.0 in {SITE} shadows 2.3.0 in /home/u/.local"],
    ),
    ("suite", {"python__child": Child("ended with 1: No module named bench_lib")}, FAIL, ["No module named"]),
    ("suite", {"python__distributions": without("pyarrow")}, FAIL, ["no pyarrow"]),
    ("suite", {"python__distributions": without("numba")}, WARN, ["no numba", "pip install -e '.[measure]'"]),
    (
        "compiler",
        {"python__compilers": {"cuda": "torch.compile needs a compiler and none is in PATH; install gcc"}},
        WARN,
        ["none is in PATH", "install gcc"],
    ),
    ("compiler", {"python__compilers": {"cpu": "g++ does not run: denied"}}, WARN, ["denied; repair it"]),
    ("python-headers", {"python__headers": ""}, WARN, ["no Python.h", "python3-dev"]),
    ("triton", {"python__distributions": without("triton")}, WARN, ["no Triton"]),
    ("cupy", {"python__distributions": without("cupy-cuda12x")}, WARN, ["pip install -e '.[cuda12]'"]),
    ("cupy", {"cuda": "13.0"}, WARN, ["cupy-cuda12x", "pip install -e '.[cuda13]'"]),
    (
        "cupy",
        {"python__distributions": (*INSTALLED, dist("cupy-cuda11x", "13.6.0"))},
        FAIL,
        ["cupy-cuda11x and cupy-cuda12x"],
    ),
    (
        "onnx",
        {"python__distributions": without("onnxscript")},
        WARN,
        ["no onnxscript", "pip install -e '.[onnx]'"],
    ),
    ("ladder", {"runtimes": 1}, WARN, ["1 runtimes", "stacks create"]),
    ("nccl", {"variables": {"NCCL_P2P_DISABLE": "1"}}, WARN, ["slows collectives", "unset NCCL_P2P_DISABLE"]),
    ("nccl", {"variables": {"NCCL_NVLS_ENABLE": "0"}}, WARN, ["NCCL_NVLS_ENABLE=0"]),
    ("nccl", {"variables": {"NCCL_ALGO": "Ring"}}, WARN, ["NCCL_ALGO=Ring", "both sides"]),
    ("nccl", {"torch__libraries": {}}, WARN, ["no NCCL was loaded"]),
    ("shared-memory", {"host__shm_free_nbytes": 64 << 20}, WARN, ["0.06 GiB", "--shm-size"]),
    ("memory", {"host__available_nbytes": GIB}, WARN, ["1.0 GiB"]),
    ("open-files", {"host__open_files": 256}, WARN, ["256", "ulimit -n"]),
    ("results-disk", {"host__results_writable": False}, FAIL, ["results cannot be written", "--results"]),
    ("results-disk", {"host__results_free_nbytes": 1 << 20}, WARN, ["0.0 GiB free"]),
    (
        "jupyter",
        {"host__jupyter": "loopback", "host__container": "docker"},
        WARN,
        ["unreachable", "--ip=0.0.0.0"],
    ),
    ("launch-blocking", {"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, FAIL, ["is set", "unset it"]),
    (
        "profiler",
        {"variables": {"CUDA_INJECTION64_PATH": "/x/libT.so"}},
        FAIL,
        ["/x/libT.so", "unset CUDA_INJ"],
    ),
    (
        "profiler",
        {"variables": {"NVTX_INJECTION64_PATH": "/x/libT.so"}},
        FAIL,
        ["unset NVTX_INJECTION64_PATH"],
    ),
    ("profiler", {"variables": {"NSYS_PROFILING_SESSION_ID": "7"}}, FAIL, ["NSYS_PROFILING_SESSION_ID"]),
    (
        "profiler",
        {"variables": {"LD_PRELOAD": "/opt/nsys/libToolsInjection64.so"}},
        FAIL,
        ["libToolsInjection"],
    ),
    ("profiler", {"process": Process(mapped=("libcuinj64.so.12",))}, FAIL, ["libcuinj64.so.12"]),
    ("debugger", {"process": Process(tracer="gdb (pid 12)")}, FAIL, ["gdb (pid 12) traces"]),
    ("debugger", {"process": Process(hooks=("coverage.tracer",))}, FAIL, ["coverage.tracer at every line"]),
    ("sanitizer", {"variables": {"LD_PRELOAD": "/usr/lib/libasan.so.8"}}, FAIL, ["libasan.so.8 checks"]),
    ("sanitizer", {"process": Process(mapped=("libtsan.so.2",))}, FAIL, ["libtsan.so.2 checks"]),
    ("sanitizer", {"process": Process(mapped=("vgpreload_core-amd64-linux.so",))}, FAIL, ["vgpreload"]),
    ("sanitizer", {"process": Process(mapped=("libsanitizer-collection.so",))}, FAIL, ["libsanitizer"]),
    (
        "slowing-variables",
        {"variables": {"NCCL_DEBUG": "INFO"}},
        WARN,
        ["NCCL_DEBUG=INFO (NCCL writes logs)"],
    ),
    ("slowing-variables", {"variables": {"PYTHONMALLOC": "debug"}}, WARN, ["unset PYTHONMALLOC"]),
    ("compiling", {"variables": {"TORCHDYNAMO_DISABLE": "1"}}, WARN, ["torch.compile does nothing"]),
    ("precision-override", {"variables": {"NVIDIA_TF32_OVERRIDE": "0"}}, WARN, ["decides about TF32"]),
    ("cpu-governor", {"host__governor": "powersave"}, WARN, ["powersave", "cpupower"]),
    ("cpu-limit", {"host__cpu_quota": 2.5}, WARN, ["2.5 CPUs on 16"]),
    ("cpu-limit", {"host__cpus": 1}, WARN, ["1 CPU"]),
    ("load", {"host__load": 9.0}, WARN, ["load 9.0 on 16 CPUs"]),
    ("container", {"host__virtualisation": "gvisor"}, WARN, ["gvisor"]),
    ("wsl", {"host__wsl": True, "host__kernel": "5.15-microsoft"}, WARN, ["WSL (5.15-microsoft)"]),
]


@pytest.mark.parametrize(("name", "changes", "state", "told"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_found_with_what_mends_it(name, changes, state, told):
    finding = look(name, made(**changes))
    assert finding.state is state, finding
    assert finding.found
    assert finding.mend
    for words in told:
        assert words in finding.sentence


def test_every_check_is_shown_to_find_something():
    never = set(LIST) - {name for name, *_ in FAULTS} - {"driver-version"}
    assert never == {"ranks"}  # which only counts


@pytest.mark.parametrize("name", LIST)
def test_a_healthy_machine_has_no_fault(name):
    finding = look(name, HEALTHY)
    assert finding.state in (OK, ABSENT), finding
    assert finding.mend == finding.expected == ""


def test_on_a_healthy_machine_most_is_asked():
    states = {answer.check.name: answer.finding.state for answer in checks.look(HEALTHY)}
    absent = {name for name, state in states.items() if state is ABSENT}
    assert absent == {"promises", "conda", "jupyter", "precision-override", "wsl"}
    assert checks.exit_code(checks.look(HEALTHY)) == 0


def test_a_laptop_without_gpu_and_torch_is_no_fault():
    answers = checks.look(LAPTOP)
    assert {a.check.name for a in answers if a.finding.state in (FAIL, WARN)} == set()
    assert checks.exit_code(answers) == 0
    groups = {a.check.name: a.finding.state for a in answers if a.group in ("driver", "GPU")}
    assert set(groups.values()) == {ABSENT}


@pytest.mark.parametrize("snapshot", [Snapshot(), made(driver=CudaDriver(), torch=LAPTOP.torch)])
def test_every_check_bears_a_machine_that_tells_nothing(snapshot):
    for answer in checks.look(snapshot):
        assert answer.finding.found


def test_a_gpu_that_only_libcuda_tells_of_is_one():
    """As in sandboxes that hide /proc/driver, /dev and the PCI bus."""
    hidden = made(host=LAPTOP.host)
    assert hidden.nvidia
    assert look("gpu", hidden).state is OK
    assert look("device-nodes", hidden).state is ABSENT
    broken = made(hidden, driver=error(999))
    assert look("gpu", broken).state is look("driver-starts", broken).state is FAIL
    assert look("torch-sees-gpu", made(broken, torch__available=False)).state is FAIL
    none = made(hidden, driver=error(100))  # libcuda is installed, and there is nothing for it
    assert not none.nvidia
    assert look("gpu", none).state is look("driver-starts", none).state is ABSENT


def test_a_fault_is_exit_code_3_and_a_doubt_is_none():
    assert checks.exit_code(checks.look(made(gpu__processes=(1,)))) == 0
    assert checks.exit_code(checks.look(made(torch__cuda=""))) == 3


@pytest.mark.parametrize(
    ("cuda", "driver_cuda", "module", "state", "told"),
    [
        ("11.8", "13.0", "580.65.06", OK, ""),
        ("11.8", "11.4", "470.57.02", WARN, "520.61"),
        ("11.8", "10.2", "440.33.01", FAIL, "driver 450.80 or newer"),
        ("12.4", "12.4", "550.54.14", OK, ""),
        ("12.4", "12.2", "535.104.05", WARN, "550.54"),
        ("12.4", "12.0", "525.60.13", WARN, "minor-version compatibility"),
        ("12.4", "11.8", "520.61.05", FAIL, "driver 525.60 or newer"),
        ("13.0", "13.0", "580.65.06", OK, ""),
        ("13.0", "12.9", "575.57.08", FAIL, "driver 580 or newer"),
        # Where libcuda does not load, the kernel module's version must do.
        ("13.0", "", "575.57.08", FAIL, "driver 580 or newer"),
        ("12.4", "", "535.104.05", WARN, "550.54"),
        ("12.4", "", "550.54.14", OK, ""),
        ("12.4", "", "", ABSENT, "no driver"),
        ("", "13.0", "580.65.06", ABSENT, "no CUDA"),
        ("14.0", "13.0", "580.65.06", FAIL, "of its time"),
    ],
)
def test_the_driver_against_the_runtime(cuda, driver_cuda, module, state, told):
    finding = look("driver-version", made(cuda=cuda, driver__cuda=driver_cuda, host__module_version=module))
    assert finding.state is state
    assert told in finding.sentence


@pytest.mark.parametrize(
    ("capability", "archs", "state"),
    [
        ("8.6", ("sm_80",), OK),  # of the same major, from its minor on
        ("8.0", ("sm_86", "compute_86"), FAIL),
        ("9.0", ("sm_90a",), OK),
        ("12.0", ("sm_90", "compute_90"), WARN),
        ("12.0", ("sm_90", "compute_90a"), FAIL),  # PTX with "a" is for one GPU
        ("10.3", ("sm_100f",), OK),
        ("9.0", (), OK),  # what the CUDA release is known to build for
        ("12.0", (), FAIL),
    ],
)
def test_which_compiled_code_a_gpu_runs(capability, archs, state):
    assert look("gpu-code", made(driver__devices=device(capability), torch__archs=archs)).state is state


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("driver-match", {"driver__library": "/usr/lib/wsl/lib/libcuda.so.1"}),
        ("device-nodes", {"host__wsl": True, "host__nodes": {}}),
        ("persistence", {"gpu__settings": {}}),
        ("ecc", {"gpu__settings": {}}),
        ("fabric-manager", {"gpu__fabric": ""}),
        ("fabric-manager", {"gpu__fabric": "not started"}),  # a GPU given to a virtual machine by itself
        ("ranks", {"driver__devices": (DEVICE,)}),
        ("gpu-code", {"torch__archs": (), "has_kernels": False}),  # a runtime alone
        ("torch-import", {"torch": LAPTOP.torch}),
        ("cupy", {"holds": ("torch",)}),
        ("triton", {"holds": ()}),
        ("onnx", {"holds": ()}),
        ("torch-build", {"torch__held": False, "torch__version": ""}),
        ("torch-libraries", {"torch__libraries": {}}),
    ],
)
def test_what_there_is_not_is_not_applicable(name, changes):
    assert look(name, made(**changes)).state is ABSENT


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("slowing-variables", {"variables": {"NCCL_DEBUG": "WARN", "CUDA_CACHE_DISABLE": "0"}}),
        ("launch-blocking", {"variables": {"CUDA_LAUNCH_BLOCKING": "0"}}),
        ("sanitizer", {"variables": {"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}}),
        ("profiler", {"variables": {"NSYS_NVTX_PROFILER_REGISTER_ONLY": "0"}}),  # nsys may come later
        ("profiler", {"python__distributions": (dist("cupti-python", "13.0"),)}),
        (
            "compute-mode",
            {"gpu__settings": {**GPU_OF, "compute_mode": "exclusive-process"}, "host__mps": True},
        ),
        ("jupyter", {"host__jupyter": "loopback"}),
        ("open-files", {"host__open_files": -1}),
        ("cpu-limit", {"host__cpu_quota": 16.0}),
        (
            "torch-libraries",  # torchvision brings one for itself alone
            {
                "torch__libraries": {
                    "cudart": (
                        *LIBRARIES["cudart"],
                        Library(f"{SITE}/torchvision.libs/libcudart-1.so", "11.8"),
                    )
                }
            },
        ),
        *(  # a stack of libraries by path, in a Python that has others: those are none of its business
            (
                name,
                {
                    "sites": ("/cache",),
                    "torch__libraries": {"cudnn": library("cudnn", "8.9", "/cache/n/lib")},
                },
            )
            for name in ("library-places", "cudnn-nccl")
        ),
        ("torch-parts", {"torch__unresolved": ("x: libcuda.so.1: cannot open",), "driver": CudaDriver()}),
        ("library-places", {"torch__libraries": {"cublas": library("cublas", "12.4", "/usr/lib")}}),
        ("kernel-module", {"driver__devices": device("8.0"), "host__module_open": False}),
    ],
)
def test_what_is_no_fault(name, changes):
    assert look(name, made(**changes)).state is OK


def test_a_torch_that_a_made_stack_holds_must_be_there():
    found = look("torch-import", made(LAPTOP, stack="cu124"))
    assert found.state is FAIL
