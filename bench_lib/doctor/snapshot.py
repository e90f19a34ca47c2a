"""Everything the checks look at, gathered once: plain frozen values, so that any state can be made up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

GIB = 1 << 30
NO_DEVICE = 100  # cuda.h: CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True)
class Child:
    """How the process ended that looked: all is well, or why not, what it was doing and where."""

    problem: str = ""  # "did not answer within 30 s", "was ended by SIGSEGV", "ended with 1: ..."
    stage: str = ""  # such as "importing torch"
    where: str = ""  # file and line, where Python could tell them

    @property
    def story(self) -> str:
        """The problem with stage and place."""
        stage = f" while {self.stage}" if self.stage else ""
        return f"{self.problem}{stage}{f' (at {self.where})' if self.where else ''}"


@dataclass(frozen=True)
class Device:
    """One GPU as the CUDA driver shows it to a process of the stack."""

    uuid: str
    name: str
    compute_capability: str  # "9.0"
    attributes: Mapping[str, int] = field(default_factory=dict)  # those of memory_mode.ATTRIBUTES


@dataclass(frozen=True)
class CudaDriver:
    """What libcuda says in a process of the stack."""

    child: Child = Child()
    library: str = ""  # the file that was loaded; "": there is none
    cuda: str = ""  # the newest CUDA it knows, "13.0"
    code: int = 0  # of the first call that failed
    error: str = ""  # that call, code and name
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True)
class GpuState:
    """One whole GPU as NVML sees it; what it does not tell is absent."""

    uuid: str
    settings: Mapping[str, str] = field(default_factory=dict)  # as Telemetry.describe, without "gpu."
    processes: tuple[int, ...] = ()
    free_nbytes: int = 0
    total_nbytes: int = 0
    fabric: str = ""  # "", "not started", "in progress", "completed", "failed"
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nvml:
    """What NVML says."""

    child: Child = Child()
    error: str = ""
    gpus: tuple[GpuState, ...] = ()


@dataclass(frozen=True)
class Library:
    """A CUDA library that was loaded: its file, and the version it gives of itself."""

    path: str
    version: str = ""


@dataclass(frozen=True)
class Torch:
    """What a process of the stack says that imported torch."""

    child: Child = Child()
    held: bool = True  # whether the stack holds torch at all
    error: str = ""  # what the import, or the loading of the stack's libraries, raised
    version: str = ""  # "": it did not import
    cuda: str = ""  # the CUDA it is built for; "": built for the CPU
    file: str = ""
    available: bool | None = None
    said: str = ""  # the warning it gave when it was asked for the GPU
    count: int = 0
    name: str = ""
    compute_capability: str = ""
    archs: tuple[str, ...] = ()  # "sm_90", "compute_90"
    nccl: str = ""  # the version it was compiled with
    libraries: Mapping[str, tuple[Library, ...]] = field(default_factory=dict)
    built: Mapping[str, str] = field(default_factory=dict)  # cudnn, nccl -> the CUDA each is built for
    unresolved: tuple[str, ...] = ()  # parts of it that cannot be loaded, each with the reason
    broken: str = ""  # the first promise of the stack that does not hold


@dataclass(frozen=True)
class Distribution:
    """An installed Python distribution."""

    name: str
    version: str
    folder: str
    requires: tuple[str, ...] = ()
    installer: str = ""


@dataclass(frozen=True)
class Python:
    """The stack's interpreter and what is installed for it; nothing was imported to know it."""

    child: Child = Child()
    executable: str = ""
    version: str = ""
    prefix: str = ""
    distributions: tuple[Distribution, ...] = ()
    conda: tuple[str, ...] = ()  # CUDA packages that conda put into the prefix
    headers: str = ""  # the folder of Python.h; "": it is not there
    compilers: Mapping[str, str] = field(default_factory=dict)  # cuda, cpu -> what is wrong, ""


@dataclass(frozen=True)
class Host:
    """The machine as its small files tell it."""

    kernel: str = ""
    container: str = "none"
    virtualisation: str = "none"
    wsl: bool = False
    pci_gpus: int = 0  # NVIDIA's display and 3D controllers
    module_version: str = ""  # of the loaded kernel module
    module_open: bool = False
    hmm_disabled: str = ""  # "Y", "N", "" where unknown
    nodes: Mapping[str, bool] = field(default_factory=dict)  # nvidia0 -> whether it can be opened
    mps: bool = False  # whether a control daemon of MPS is there
    governor: str = ""
    load: float = 0.0
    cpus: int = 1  # this process may run on
    cpu_quota: float | None = None  # of the container, in CPUs
    available_nbytes: int = 0
    shm_free_nbytes: int = 0
    open_files: int = 0
    results: str = ""
    results_free_nbytes: int = 0
    results_writable: bool = True
    jupyter: str = ""  # "", "loopback", "anywhere": who reaches port 8888

    @property
    def nvidia(self) -> bool:
        """Whether anything says that this machine has an NVIDIA GPU."""
        return bool(self.pci_gpus or self.module_version or self.nodes)


@dataclass(frozen=True)
class Process:
    """What is attached to a process that measures."""

    tracer: str = ""  # the process that traces it: "gdb (pid 12)"
    hooks: tuple[str, ...] = ()  # Python's tracing and profiling functions
    mapped: tuple[str, ...] = ()  # file names of profilers' and sanitizers' libraries


@dataclass(frozen=True)
class Snapshot:
    """The whole: one stack on one machine."""

    stack: str = "here"
    cuda: str = ""  # the CUDA the stack is made of, "12.4"
    has_kernels: bool = True  # whether it brings compiled GPU code
    holds: tuple[str, ...] = ("torch", "cupy", "triton")  # of these packages, those that are part of it
    sites: tuple[str, ...] = ()  # the folders that its own libraries lie below
    runtimes: int = 0  # CUDA runtimes in the cache, for the ladder
    mixed_wheels: str = ""  # preflight's sentence
    shadowing: str = ""  # preflight's sentence
    variables: Mapping[str, str] = field(default_factory=dict)
    driver: CudaDriver = CudaDriver()
    nvml: Nvml = Nvml()
    torch: Torch = Torch()
    python: Python = Python()
    host: Host = Host()
    process: Process = Process()

    @property
    def device(self) -> Device | None:
        """The GPU that is measured on: the first that CUDA shows."""
        return self.driver.devices[0] if self.driver.devices else None

    @property
    def gpu(self) -> GpuState | None:
        """NVML's view of it; a slice's is that of the first GPU in MIG mode."""
        uuid = self.device.uuid if self.device else ""
        fitting = [gpu for gpu in self.nvml.gpus if gpu.uuid == uuid]
        slices = [gpu for gpu in self.nvml.gpus if gpu.settings.get("mig_mode") == "on"]
        return next(iter(fitting or (slices if uuid.startswith("MIG-") else ()) or self.nvml.gpus), None)

    @property
    def nvidia(self) -> bool:
        """Whether anything says that there is a GPU, be it only libcuda, as in some sandboxes."""
        alive = self.driver.devices or self.driver.code not in (0, NO_DEVICE)
        return self.host.nvidia or bool(alive or (self.driver.library and self.driver.child.problem))

    def versions(self, name: str) -> list[Distribution]:
        """The installed distributions of a name, first come first served."""
        return [one for one in self.python.distributions if one.name == name]
