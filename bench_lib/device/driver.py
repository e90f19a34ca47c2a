"""libcuda through ctypes: a device ordinal in; a context with streams, events, memory, code out.

No runtime library and no torch: canaries and the raw cases' control stand on this alone. Nothing
touches the GPU before `Driver.open` (or `describe`). Pointers and handles are plain integers.
"""

import ctypes
import uuid
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, Self

from bench_lib.device.c_library import Library
from bench_lib.device.driver_calls import SIGNATURES
from bench_lib.errors import CudaError, Unavailable, UsageError

Dim3 = tuple[int, int, int]

# cuda.h: CUctx_flags, the scheduling part.
WAITS = {"auto": 0, "spin": 1, "yield": 2, "block": 4}
_SCHEDULING_MASK = 7
_CONTEXT_ACTIVE = 708

# cuda.h: CUdevice_attribute.
_L2_CACHE_SIZE, _MAJOR, _MINOR = 38, 75, 76
_STREAM_NON_BLOCKING = 1
_HOST_PORTABLE_AND_MAPPED = 3
_JIT_INPUT_PTX = 1
_LOADING = {1: "eager", 2: "lazy"}  # cuda.h: CUmoduleLoadingMode


@dataclass(frozen=True)
class DeviceInfo:
    """What a device says of itself."""

    ordinal: int
    uuid: str  # as NVML writes it: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, or MIG-...
    name: str
    compute_capability: tuple[int, int]
    l2_nbytes: int
    total_nbytes: int


class Driver:
    """The CUDA driver's library; loading it initialises nothing."""

    def __init__(self, library: Library) -> None:
        self._library = library

    @classmethod
    def load(cls) -> Self:
        """Load libcuda.so.1; raises Unavailable where there is no NVIDIA driver."""
        try:
            return cls(Library("libcuda.so.1", SIGNATURES))
        except OSError:
            raise Unavailable("libcuda.so.1 not found: no NVIDIA driver here") from None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a driver function; raises CudaError when it returns anything but 0."""
        code = self._library.function(name)(*arguments)
        if code:
            raise CudaError(name, code, self.error_name(code))

    def error_name(self, code: int) -> str:
        """`CUDA_ERROR_...` of a code, "" for one the driver does not know."""
        name = c_char_p()
        self._library.function("cuGetErrorName")(code, ctypes.byref(name))
        return (name.value or b"").decode()

    def address(self, symbol: str) -> int:
        """The address of a driver function, for the native loops."""
        return self._library.address(symbol)

    @property
    def version(self) -> tuple[int, int]:
        """The newest CUDA this driver knows, such as (13, 0); needs no GPU."""
        version = self._integer("cuDriverGetVersion")
        return version // 1000, version % 1000 // 10

    def count(self) -> int:
        """How many devices this process sees; makes no context. Raises CudaError."""
        self.call("cuInit", 0)
        return self._integer("cuDeviceGetCount")

    def describe(self, device: int = 0) -> DeviceInfo:
        """What the device says of itself; makes no context. Raises CudaError."""
        self.call("cuInit", 0)
        self._integer("cuDeviceGet", device)  # checks it; the handle it gives is the ordinal
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), device)
        total = c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        capability = (self.attribute(_MAJOR, device), self.attribute(_MINOR, device))
        l2_nbytes = self.attribute(_L2_CACHE_SIZE, device)
        return DeviceInfo(device, self._uuid(device), name.value.decode(), capability, l2_nbytes, total.value)

    def module_loading(self) -> str:
        """`eager` or `lazy`: how this process loads code, "unknown" to a driver from before CUDA 11.7."""
        try:
            return _LOADING.get(self._integer("cuModuleGetLoadingMode"), "unknown")
        except Unavailable:
            return "unknown"

    def attribute(self, number: int, device: int = 0) -> int:
        """One CUdevice_attribute of a device."""
        return self._integer("cuDeviceGetAttribute", number, device)

    def open(self, device: int = 0, wait: str = "spin") -> "Context":
        """Make the device's primary context current here; it waits as `wait` says (WAITS).

        When something else holds the context already its waiting cannot be changed: what is in
        effect is in `Context.wait`. Raises CudaError, or UsageError for an unknown `wait`.
        """
        if wait not in WAITS:
            raise UsageError(f"the context cannot wait by {wait!r}; expected one of {', '.join(WAITS)}")
        info = self.describe(device)
        try:
            self.call("cuDevicePrimaryCtxSetFlags_v2", device, WAITS[wait])
        except CudaError as error:
            if error.code != _CONTEXT_ACTIVE:
                raise
        context = self.handle("cuDevicePrimaryCtxRetain", device)
        self.call("cuCtxSetCurrent", context)
        return Context(self, info)

    def wait_of(self, device: int) -> str:
        """How the device's primary context waits, as it says itself."""
        flags, active = c_uint(), c_int()
        self.call("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
        names = {flag: wait for wait, flag in WAITS.items()}
        return names.get(flags.value & _SCHEDULING_MASK, "unknown")

    def handle(self, name: str, *arguments: Any) -> int:
        """The 64-bit handle or pointer that a call writes through its first parameter."""
        result = c_uint64()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value

    def _integer(self, name: str, *arguments: Any) -> int:
        result = c_int()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value

    def _uuid(self, device: int) -> str:
        physical, visible = (c_ubyte * 16)(), (c_ubyte * 16)()
        self.call("cuDeviceGetUuid", physical, device)
        self.call("cuDeviceGetUuid_v2", visible, device)
        # Only of a MIG slice do the two differ: the first is its GPU's, the second its own.
        kind = "GPU" if bytes(physical) == bytes(visible) else "MIG"
        return f"{kind}-{uuid.UUID(bytes=bytes(visible))}"


class Context:
    """The primary context of one device, current in the thread that opened it."""

    def __init__(self, driver: Driver, info: DeviceInfo) -> None:
        self.driver = driver
        self.ordinal = info.ordinal
        self.uuid = info.uuid
        self.name = info.name
        self.compute_capability = info.compute_capability
        self.l2_nbytes = info.l2_nbytes
        self.total_nbytes = info.total_nbytes
        self.wait = driver.wait_of(info.ordinal)  # what is in effect: spin, yield, block or auto

    def attribute(self, number: int) -> int:
        """One CUdevice_attribute of this device."""
        return self.driver.attribute(number, self.ordinal)

    def close(self) -> None:
        """Give the primary context back; what was made in it goes with its last holder."""
        self.driver.call("cuDevicePrimaryCtxRelease_v2", self.ordinal)

    # Streams and events.

    def stream(self) -> int:
        """A new stream that does not wait for the default one."""
        return self.driver.handle("cuStreamCreate", _STREAM_NON_BLOCKING)

    def synchronize(self, stream: int) -> None:
        """Wait until all work of the stream has ended."""
        self.driver.call("cuStreamSynchronize", stream)

    def event(self) -> int:
        """A new event that keeps time."""
        return self.driver.handle("cuEventCreate", 0)

    def record(self, event: int, stream: int) -> None:
        """Let the event take the time when the stream gets there."""
        self.driver.call("cuEventRecord", event, stream)

    def elapsed(self, start: int, end: int) -> float:
        """Seconds between two events that have both taken their time."""
        milliseconds = ctypes.c_float()
        self.driver.call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value * 1e-3

    # Memory.

    def alloc(self, nbytes: int) -> int:
        """The address of new device memory; CudaError 2 when there is not enough."""
        return self.driver.handle("cuMemAlloc_v2", nbytes)

    def free(self, pointer: int) -> None:
        """Give device memory back."""
        self.driver.call("cuMemFree_v2", pointer)

    def memory_info(self) -> tuple[int, int]:
        """Bytes of device memory: (free, in all); others on the device count as used."""
        free, total = c_size_t(), c_size_t()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def host_alloc(self, nbytes: int) -> tuple[int, int]:
        """New pinned host memory that the device sees too: (host address, device address)."""
        host = self.driver.handle("cuMemHostAlloc", nbytes, _HOST_PORTABLE_AND_MAPPED)
        return host, self.driver.handle("cuMemHostGetDevicePointer_v2", host, 0)

    def host_free(self, host: int) -> None:
        """Give pinned host memory back."""
        self.driver.call("cuMemFreeHost", host)

    def copy_async(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy; either end may be device or pinned host memory."""
        self.driver.call("cuMemcpyAsync", target, source, nbytes, stream)

    def set_async(self, pointer: int, value: int, count: int, stream: int) -> None:
        """Queue writing `count` 32-bit words of one value."""
        self.driver.call("cuMemsetD32Async", pointer, value, count, stream)

    def upload(self, pointer: int, data: bytes) -> None:
        """Copy bytes to device memory and wait."""
        self.driver.call("cuMemcpyHtoD_v2", pointer, data, len(data))

    def download(self, pointer: int, nbytes: int) -> bytes:
        """Copy bytes from device memory and wait."""
        data = ctypes.create_string_buffer(nbytes)
        self.driver.call("cuMemcpyDtoH_v2", data, pointer, nbytes)
        return data.raw

    # Code.

    def link(self, ptx: str) -> bytes:
        """The cubin that the driver makes for this device from PTX text."""
        source = ptx.encode() + b"\0"  # the driver wants the NUL counted
        state, image, nbytes = c_void_p(), c_void_p(), c_size_t()
        self.driver.call("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
        try:
            arguments = (source, len(source), b"kernels.ptx", 0, None, None)
            self.driver.call("cuLinkAddData_v2", state, _JIT_INPUT_PTX, *arguments)
            self.driver.call("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(nbytes))
            return ctypes.string_at(image.value or 0, nbytes.value)  # the state owns the image
        finally:
            self.driver.call("cuLinkDestroy", state)

    def load(self, cubin: bytes) -> int:
        """A module from a cubin; its code may be loaded only when a function is first used."""
        return self.driver.handle("cuModuleLoadData", cubin)

    def function(self, module: int, name: str) -> int:
        """A kernel of a module; CudaError 500 when it has none of that name."""
        return self.driver.handle("cuModuleGetFunction", module, name.encode())

    def launch(self, function: int, grid: Dim3, block: Dim3, arguments: Sequence[Any], stream: int) -> None:
        """Queue a kernel; its parameters are ctypes values (`c_uint64(pointer)`, ...)."""
        pointers = (c_void_p * len(arguments))(*(ctypes.addressof(value) for value in arguments))
        self.driver.call("cuLaunchKernel", function, *grid, *block, 0, stream, pointers, None)
