/* A pretended libcudart of one version (-DMAJOR=12 -DMINOR=4) on top of the pretended driver.
 *
 * FAKE_CUDART_<MAJOR>_<MINOR>_SUBMIT_NS: host time it adds to each launch, to plant a slow runtime.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int Status;
typedef struct { unsigned x, y, z; } dim3;
typedef struct Binary { const void *cubin; void *module; } Binary;

enum { OK = 0, INSUFFICIENT_DRIVER = 35, INVALID_FUNCTION = 98, NO_IMAGE = 209 };

static struct { const void *key; const char *name; Binary *binary; void *function; } registered[256];
static int n_registered;
static long long extra_ns;
static void *cuda;

/* cudart finds its driver when it is first used, so that it loads where there is none */
static void *driver(const char *name) {
    if (!cuda) cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return cuda ? dlsym(cuda, name) : NULL;
}

static void *bound(void **slot, const char *name) { return *slot ? *slot : (*slot = driver(name)); }

#define NEEDS(name) static void *name##_
#define DRIVER(name) ((Status (*)())bound(&name##_, #name)) /* C11: parameters not checked */

static Status ready(void) {
    static int done;
    NEEDS(cuInit); NEEDS(cuCtxGetCurrent); NEEDS(cuDevicePrimaryCtxRetain); NEEDS(cuCtxSetCurrent);
    if (done) return OK;
    if (!driver("cuInit")) return INSUFFICIENT_DRIVER;
    Status status = DRIVER(cuInit)(0);
    void *context = NULL;
    if (!status) status = DRIVER(cuCtxGetCurrent)(&context);
    if (!status && !context) {
        status = DRIVER(cuDevicePrimaryCtxRetain)(&context, 0);
        if (!status) status = DRIVER(cuCtxSetCurrent)(context);
    }
    char name[64];
    snprintf(name, sizeof name, "FAKE_CUDART_%d_%d_SUBMIT_NS", MAJOR, MINOR);
    extra_ns = getenv(name) ? atoll(getenv(name)) : 0;
    done = !status;
    return status;
}

Status cudaRuntimeGetVersion(int *version) {
    *version = 1000 * MAJOR + 10 * MINOR;
    return MAJOR < 12 ? ready() : OK; /* CUDA 11 asks the driver first */
}

Status cudaGetLastError(void) { return OK; }
Status cudaFree(void *pointer) { (void)pointer; return ready(); }
Status cudaSetDevice(int device) { (void)device; return ready(); }

const char *cudaGetErrorName(Status code) {
    static const char *name;
    NEEDS(cuGetErrorName);
    return driver("cuInit") && !DRIVER(cuGetErrorName)(code, &name) ? name : "cudaErrorUnknown";
}

/* ---- registration, as nvcc's host code does it ---- */

void **__cudaRegisterFatBinary(void *wrapper) {
    struct { int magic, version; const unsigned char *data; void *rest; } *w = wrapper;
    Binary *binary = calloc(1, sizeof(Binary));
    if (w->magic != 0x466243b1 || w->version != 1 || (uintptr_t)w->data % 8) return (void **)binary;
    const unsigned char *entry = w->data + 16;
    uint64_t whole = *(uint64_t *)(w->data + 8), size = *(uint64_t *)(entry + 8);
    int good = *(uint32_t *)w->data == 0xBA55ED50u && *(uint16_t *)(w->data + 4) == 1 && *(uint16_t *)(w->data + 6) == 16
        && *(uint16_t *)entry == 2 && *(uint16_t *)(entry + 2) == 0x0101 && *(uint32_t *)(entry + 4) == 64
        && *(uint32_t *)(entry + 28) == 90 && whole == 64 + size;
    if (good) binary->cubin = entry + 64;
    return (void **)binary;
}

void __cudaRegisterFunction(void **binary, const char *key, char *device, const char *name, int limit,
                            void *tid, void *bid, void *block, void *grid, int *warp) {
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    registered[n_registered].key = key;
    registered[n_registered].name = name;
    registered[n_registered++].binary = (Binary *)binary;
}

void __cudaRegisterFatBinaryEnd(void **binary) { (void)binary; }
void __cudaUnregisterFatBinary(void **binary) { free(binary); }

static Status find(const void *key, void **function) { /* loads the module at the first launch: lazily */
    NEEDS(cuModuleLoadData); NEEDS(cuModuleGetFunction);
    for (int i = 0; i < n_registered; i++) {
        if (registered[i].key != key) continue;
        Binary *binary = registered[i].binary;
        if (!binary->cubin) return NO_IMAGE;
        Status status = binary->module ? OK : DRIVER(cuModuleLoadData)(&binary->module, binary->cubin);
        if (!status && !registered[i].function)
            status = DRIVER(cuModuleGetFunction)(&registered[i].function, binary->module, registered[i].name);
        *function = registered[i].function;
        return status;
    }
    return INVALID_FUNCTION;
}

static void spend(void) {
    struct timespec t;
    if (!extra_ns) return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long end = t.tv_sec * 1000000000LL + t.tv_nsec + extra_ns;
    while (t.tv_sec * 1000000000LL + t.tv_nsec < end) clock_gettime(CLOCK_MONOTONIC, &t);
}

Status cudaLaunchKernel(const void *key, dim3 grid, dim3 block, void **parameters, size_t shared, void *stream) {
    NEEDS(cuLaunchKernel);
    void *function = NULL;
    Status status = ready();
    if (!status) status = find(key, &function);
    if (status) return status;
    spend();
    return DRIVER(cuLaunchKernel)(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared,
                                  stream, parameters, (void **)NULL);
}

/* ---- what passes straight through ---- */

#define PASS(name, driver_name, parameters, arguments) \
    Status name parameters { NEEDS(driver_name); Status status = ready(); return status ? status : DRIVER(driver_name) arguments; }

PASS(cudaStreamSynchronize, cuStreamSynchronize, (void *stream), (stream))
PASS(cudaDeviceSynchronize, cuCtxSynchronize, (void), ())
PASS(cudaStreamBeginCapture, cuStreamBeginCapture_v2, (void *stream, int mode), (stream, mode))
PASS(cudaStreamEndCapture, cuStreamEndCapture, (void *stream, void **graph), (stream, graph))
PASS(cudaGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags), (exec, graph, flags))
PASS(cudaGraphLaunch, cuGraphLaunch, (void *exec, void *stream), (exec, stream))
PASS(cudaGraphDestroy, cuGraphDestroy, (void *graph), (graph))
PASS(cudaGraphExecDestroy, cuGraphExecDestroy, (void *exec), (exec))
