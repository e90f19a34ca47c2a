"""The functions of libcuda that this suite calls, with their parameters."""

from ctypes import c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

# The parameters of every call, as cuda.h declares them from 11.4 on. Handles and CUdeviceptr are
# c_void_p; "..._v2" are the names that cuda.h's macros give to the functions of the manual.
# fmt: off
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,), "cuDriverGetVersion": (c_void_p,), "cuGetErrorName": (c_int, c_void_p),
    "cuDeviceGetCount": (c_void_p,), "cuDeviceGet": (c_void_p, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid": (c_void_p, c_int), "cuDeviceGetUuid_v2": (c_void_p, c_int),
    "cuDeviceTotalMem_v2": (c_void_p, c_int), "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuDevicePrimaryCtxSetFlags_v2": (c_int, c_uint),
    "cuDevicePrimaryCtxGetState": (c_int, c_void_p, c_void_p),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int), "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuStreamCreate": (c_void_p, c_uint), "cuStreamSynchronize": (c_void_p,),
    "cuEventCreate": (c_void_p, c_uint), "cuEventRecord": (c_void_p, c_void_p),
    "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
    "cuMemAlloc_v2": (c_void_p, c_size_t), "cuMemFree_v2": (c_void_p,),
    "cuMemGetInfo_v2": (c_void_p, c_void_p),
    "cuMemHostAlloc": (c_void_p, c_size_t, c_uint), "cuMemFreeHost": (c_void_p,),
    "cuMemHostGetDevicePointer_v2": (c_void_p, c_void_p, c_uint),
    "cuMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyHtoD_v2": (c_void_p, c_void_p, c_size_t), "cuMemcpyDtoH_v2": (c_void_p, c_void_p, c_size_t),
    "cuMemsetD32Async": (c_void_p, c_uint, c_size_t, c_void_p),
    "cuLinkCreate_v2": (c_uint, c_void_p, c_void_p, c_void_p),
    "cuLinkAddData_v2": (c_void_p, c_int, c_char_p, c_size_t, c_char_p, c_uint, c_void_p, c_void_p),
    "cuLinkComplete": (c_void_p, c_void_p, c_void_p), "cuLinkDestroy": (c_void_p,),
    "cuModuleGetLoadingMode": (c_void_p,),
    "cuModuleLoadData": (c_void_p, c_char_p), "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
}
# fmt: on
