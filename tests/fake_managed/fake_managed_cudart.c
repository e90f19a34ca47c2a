/* The pretended libcudart of ../fake_cuda with the managed-memory calls of its version.
 *
 * Their parameters are those of the real cuda_runtime_api.h of -DMAJOR=12 -DMINOR=4. What each was
 * called with is kept in `managed_call`, so that a wrong signature shows. Without a driver beside it
 * the calls are only kept.
 */
#define cudaFree plain_cudaFree
#define cudaGetLastError plain_cudaGetLastError
#include "../fake_cuda/fake_cudart.c"
#undef cudaFree
#undef cudaGetLastError

#define VERSION (1000 * MAJOR + 10 * MINOR)

struct cudaMemLocation { int type, id; };
enum { DEVICE = 1, HOST = 2, INVALID_DEVICE = 101, INVALID_VALUE = 1 };

struct Call { char name[32]; const void *pointer; size_t count; int advice, type, id; unsigned flags; void *stream; };
struct Call managed_call;
int last_error;

static void keep(const char *name, const void *pointer, size_t count) {
    memset(&managed_call, 0, sizeof managed_call);
    snprintf(managed_call.name, sizeof managed_call.name, "%s", name);
    managed_call.pointer = pointer;
    managed_call.count = count;
}

static Status end(Status status) { return status ? last_error = status : OK; }

Status cudaGetLastError(void) {
    Status status = last_error;
    last_error = OK;
    return status;
}

static Status prefetch(const void *pointer, size_t count, int to_host, void *stream) {
    NEEDS(fake_prefetch);
    if (!driver("fake_prefetch")) return OK;
    Status status = ready();
    return end(status ? status : DRIVER(fake_prefetch)(pointer, count, to_host, stream));
}

static Status advise(const void *pointer, int advice) {
    NEEDS(fake_advise);
    if (!driver("fake_advise")) return OK;
    Status status = ready();
    return end(status ? status : DRIVER(fake_advise)(pointer, advice));
}

#define OLD_PREFETCH(name) \
    Status name(const void *pointer, size_t count, int device, void *stream) { \
        keep(#name, pointer, count); \
        managed_call.id = device, managed_call.stream = stream; \
        return device < -1 || device > 7 ? end(INVALID_DEVICE) : prefetch(pointer, count, device == -1, stream); \
    }
#define OLD_ADVISE(name) \
    Status name(const void *pointer, size_t count, int advice, int device) { \
        keep(#name, pointer, count); \
        managed_call.id = device, managed_call.advice = advice; \
        return advise(pointer, advice); \
    }
#define NEW_PREFETCH(name) \
    Status name(const void *pointer, size_t count, struct cudaMemLocation at, unsigned flags, void *stream) { \
        keep(#name, pointer, count); \
        managed_call.type = at.type, managed_call.id = at.id, managed_call.flags = flags, managed_call.stream = stream; \
        if (flags || (at.type != DEVICE && at.type != HOST)) return end(INVALID_VALUE); \
        return prefetch(pointer, count, at.type == HOST, stream); \
    }
#define NEW_ADVISE(name) \
    Status name(const void *pointer, size_t count, int advice, struct cudaMemLocation at) { \
        keep(#name, pointer, count); \
        managed_call.type = at.type, managed_call.id = at.id, managed_call.advice = advice; \
        return advise(pointer, advice); \
    }

#if VERSION >= 13000
NEW_PREFETCH(cudaMemPrefetchAsync)
NEW_ADVISE(cudaMemAdvise)
#else
OLD_PREFETCH(cudaMemPrefetchAsync)
OLD_ADVISE(cudaMemAdvise)
#if VERSION >= 12020
NEW_PREFETCH(cudaMemPrefetchAsync_v2)
NEW_ADVISE(cudaMemAdvise_v2)
#endif
#endif

Status cudaMallocManaged(void **pointer, size_t nbytes, unsigned flags) {
    NEEDS(cuMemAllocManaged);
    keep("cudaMallocManaged", NULL, nbytes);
    managed_call.flags = flags;
    if (!driver("cuMemAllocManaged")) { *pointer = malloc(nbytes); return OK; }
    Status status = ready();
    return end(status ? status : DRIVER(cuMemAllocManaged)(pointer, nbytes, flags));
}

Status cudaFree(void *pointer) {
    NEEDS(fake_free_managed); NEEDS(cuMemFree_v2);
    int found = 0;
    if (pointer && !driver("fake_free_managed")) { keep("cudaFree", pointer, 0); free(pointer); return OK; }
    Status status = ready();
    if (status || !pointer) return status;
    status = DRIVER(fake_free_managed)(pointer, &found);
    return end(status || found ? status : DRIVER(cuMemFree_v2)(pointer));
}

Status cudaMemGetInfo(size_t *unused, size_t *total) {
    NEEDS(cuMemGetInfo_v2);
    const char *text = getenv("FAKE_FREE_NBYTES");
    *unused = *total = text ? (size_t)atoll(text) : (size_t)64 << 30;
    if (text || !driver("cuMemGetInfo_v2")) return OK;
    Status status = ready();
    return status ? status : DRIVER(cuMemGetInfo_v2)(unused, total);
}

PASS(cudaMalloc, cuMemAlloc_v2, (void **pointer, size_t nbytes), (pointer, nbytes))
PASS(cudaMallocAsync, cuMemAllocAsync, (void **pointer, size_t nbytes, void *stream), (pointer, nbytes, stream))
PASS(cudaFreeAsync, cuMemFreeAsync, (void *pointer, void *stream), (pointer, stream))
