/* A pretended libnccl.so.2 of one version (-DVERSION=22105) on top of the pretended driver.
 *
 * Ranks are processes that meet in shared memory. A collective really happens, at once and on the host,
 * after the stream is empty; in a capture a copy of the result onto itself stands for it.
 *
 * Environment:
 *   FAKE_NCCL_WRONG=1        the first element of every result is one too large
 *   FAKE_NCCL_FAIL=n         the collectives after the first n return error 3, with last words
 *   FAKE_NCCL_LONELY=1       every rank is alone: size 1, rank 0
 *   FAKE_NCCL_DIE=n          rank 1 aborts in the collective after the first n
 *   FAKE_NCCL_HANG=n         rank 1 never comes to the collective after the first n
 *   FAKE_NCCL_<VERSION>_NS   host time that a version adds to each collective
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SLOT = 1 << 20, MOST = 8 };
enum { OK = 0, INTERNAL = 3, FLOAT = 7, BFLOAT = 9 };

typedef struct { char internal[128]; } Id;
typedef struct { atomic_int arrived, round, joined; char slots[MOST][SLOT]; } Shared;
typedef struct { int rank, size; Shared *shared; } Comm;

static char last_words[128];
static int n_collectives;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static int driver(const char *name, void *a, void *b, void *c, void *d) {
    static void *cuda;
    if (!cuda) cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*function)(void *, void *, void *, void *) = cuda ? dlsym(cuda, name) : NULL;
    return function ? function(a, b, c, d) : 1;
}

static void meet(Comm *comm) { /* all ranks leave once all have come */
    Shared *s = comm->shared;
    int round = atomic_load(&s->round);
    if (atomic_fetch_add(&s->arrived, 1) == comm->size - 1) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->round, 1);
        return;
    }
    while (atomic_load(&s->round) == round) sched_yield();
}

int ncclGetVersion(int *version) { *version = VERSION; return OK; }
const char *ncclGetErrorString(int code) { return code == INTERNAL ? "internal error" : "no error"; }
const char *ncclGetLastError(Comm *comm) { (void)comm; return last_words; }
int ncclCommGetAsyncError(Comm *comm, int *code) { (void)comm; *code = OK; return OK; }
int ncclCommCount(Comm *comm, int *size) { *size = comm->size; return OK; }
int ncclCommUserRank(Comm *comm, int *rank) { *rank = comm->rank; return OK; }
int ncclCommDestroy(Comm *comm) { munmap(comm->shared, sizeof(Shared)); free(comm); return OK; }

int ncclGetUniqueId(Id *id) {
    unsigned long long random = 0;
    int urandom = open("/dev/urandom", O_RDONLY);
    if (read(urandom, &random, sizeof random) < 0) return INTERNAL;
    close(urandom);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/fake-nccl-%llx", random);
    return OK;
}

int ncclCommInitRank(Comm **comm, int size, Id id, int rank) {
    if (setting("FAKE_NCCL_LONELY", 0)) size = 1, rank = 0, snprintf(id.internal, 100, "/fake-nccl-%d", getpid());
    int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    if (size > MOST || file < 0 || ftruncate(file, sizeof(Shared))) return INTERNAL;
    *comm = calloc(1, sizeof **comm);
    **comm = (Comm){rank, size, mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)};
    close(file);
    meet(*comm);
    if (rank == 0) shm_unlink(id.internal);
    return OK;
}

static void log_choice(Comm *comm, const char *name, size_t nbytes) {
    const char *level = getenv("NCCL_DEBUG"), *path = getenv("NCCL_DEBUG_FILE");
    if (comm->rank || !level || strcmp(level, "INFO")) return;
    FILE *out = path ? fopen(path, "a") : stdout;
    const char *algo = nbytes > 65536 ? "NVLS" : "RING", *proto = nbytes > 65536 ? "SIMPLE" : "LL";
    if (VERSION >= 22304)
        fprintf(out, "vm:1:1 [0] NCCL INFO %s: %zu Bytes -> Algo %s proto %s channel{Lo..Hi}={0..%d}\n", name, nbytes,
                algo, proto, nbytes > 65536 ? 15 : 1);
    else
        fprintf(out, "vm:1:1 [0] NCCL INFO %zu Bytes -> Algo %d proto %d time %f\n", nbytes, nbytes > 65536 ? 4 : 1,
                nbytes > 65536 ? 2 : 0, 7.5);
    if (path) fclose(out);
}

static int begin(Comm *comm, void *stream, const char *name, size_t nbytes, void *receive, size_t got, int *done) {
    char slow[32];
    snprintf(slow, sizeof slow, "FAKE_NCCL_%d_NS", VERSION);
    struct timespec pause = {0, setting(slow, 0)};
    if (pause.tv_nsec) nanosleep(&pause, NULL);
    int capturing = 0, n = n_collectives++;
    log_choice(comm, name, nbytes);
    long fail = setting("FAKE_NCCL_FAIL", -1), die = setting("FAKE_NCCL_DIE", -1), hang = setting("FAKE_NCCL_HANG", -1);
    if (fail >= 0 && n >= fail) {
        snprintf(last_words, sizeof last_words, "a link is down");
        return INTERNAL;
    }
    if (comm->rank == 1 && die >= 0 && n >= die) {
        fprintf(stderr, "vm:1:1 [0] NCCL WARN rank 1 cannot go on\n");
        abort();
    }
    while (comm->rank == 1 && hang >= 0 && n >= hang) sleep(1);
    driver("cuStreamIsCapturing", stream, &capturing, NULL, NULL);
    *done = capturing;
    if (capturing) return driver("cuMemcpyAsync", receive, receive, (void *)got, stream);
    return driver("cuStreamSynchronize", stream, NULL, NULL, NULL);
}

static float as_float(const char *from, int type) {
    if (type == FLOAT) { float x; memcpy(&x, from, 4); return x; }
    uint16_t half; memcpy(&half, from, 2);
    uint32_t bits = (uint32_t)half << 16; float x; memcpy(&x, &bits, 4);
    return x;
}

static void from_float(char *to, float x, int type) {
    uint32_t bits; memcpy(&bits, &x, 4);
    uint16_t half = (uint16_t)(bits >> 16);
    if (type == FLOAT) memcpy(to, &x, 4); else memcpy(to, &half, 2);
}

static void spoil(char *receive, int type) {
    if (setting("FAKE_NCCL_WRONG", 0)) from_float(receive, as_float(receive, type) + 1, type);
}

/* Sums [from, from + count) of what all ranks send into `receive`. */
static void sum(Comm *comm, const char *send, char *receive, size_t whole, size_t from, size_t count, int type) {
    size_t item = type == FLOAT ? 4 : 2, step = SLOT / item;
    for (size_t at = 0; at < whole; at += step) {
        size_t n = whole - at < step ? whole - at : step;
        memcpy(comm->shared->slots[comm->rank], send + at * item, n * item);
        meet(comm);
        for (size_t i = at; i < at + n; i++) {
            if (i < from || i >= from + count) continue;
            float total = 0;
            for (int r = 0; r < comm->size; r++) total += as_float(comm->shared->slots[r] + (i - at) * item, type);
            from_float(receive + (i - from) * item, total, type);
        }
        meet(comm);
    }
    spoil(receive, type);
}

/* Gives all ranks what some of them send: each its part, or the first one all. */
static void spread(Comm *comm, const char *send, char *receive, size_t count, int type, int ranks) {
    size_t item = type == FLOAT ? 4 : 2, step = SLOT / item;
    for (size_t at = 0; at < count; at += step) {
        size_t n = count - at < step ? count - at : step;
        memcpy(comm->shared->slots[comm->rank], send + at * item, n * item);
        meet(comm);
        for (int r = 0; r < ranks; r++) memcpy(receive + (r * count + at) * item, comm->shared->slots[r], n * item);
        meet(comm);
    }
    spoil(receive, type);
}

#define BEGIN(name, whole, got) \
    size_t item = type == FLOAT ? 4 : 2; \
    int captured, status = begin(comm, stream, name, (whole) * item, receive, (got) * item, &captured); \
    if (status || captured) return status;

int ncclAllReduce(void *send, void *receive, size_t count, int type, int op, Comm *comm, void *stream) {
    (void)op;
    BEGIN("AllReduce", count, count)
    sum(comm, send, receive, count, 0, count, type);
    return OK;
}

int ncclReduceScatter(void *send, void *receive, size_t count, int type, int op, Comm *comm, void *stream) {
    (void)op;
    BEGIN("ReduceScatter", count * comm->size, count)
    sum(comm, send, receive, count * comm->size, comm->rank * count, count, type);
    return OK;
}

int ncclAllGather(void *send, void *receive, size_t count, int type, Comm *comm, void *stream) {
    BEGIN("AllGather", count * comm->size, count * comm->size)
    spread(comm, send, receive, count, type, comm->size);
    return OK;
}

int ncclBroadcast(void *send, void *receive, size_t count, int type, int root, Comm *comm, void *stream) {
    (void)root;
    BEGIN("Broadcast", count, count)
    spread(comm, send, receive, count, type, 1);
    return OK;
}
