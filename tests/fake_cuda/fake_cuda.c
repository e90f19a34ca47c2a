/* A pretended libcuda.so.1 for tests: the driver API of one asynchronous device without a GPU.
 *
 * Each stream is a timeline on the real clock. Work starts when it was submitted or when the work
 * before it ended, whichever is later, and takes a known time; events keep the timeline's stamp,
 * and a synchronise waits until the real clock has passed the end. Copies, memsets, `fill` and kernels
 * called copy_... really happen (in host memory). The kernel `hold` ends when its flag says so; behind it
 * work queues up.
 *
 * Environment (nanoseconds unless said):
 *   FAKE_CUDA_DEVICES=1             number of devices; 0: cuInit gives error 100
 *   FAKE_CUDA_INIT_ERROR=0          what cuInit returns; or `abort`, or `hang`
 *   FAKE_CUDA_ACTIVE_FLAGS=-1       the primary context is active already, with these flags
 *   FAKE_CUDA_MIG=0                 1: the device is a MIG slice (its two UUIDs differ)
 *   FAKE_CUDA_LOADING=lazy          what cuModuleGetLoadingMode says, whatever CUDA_MODULE_LOADING asks for
 *   FAKE_CUDA_VERSION=13000         what cuDriverGetVersion says
 *   FAKE_CUDA_TOTAL_NBYTES=1 GiB    larger allocations give error 2
 *   FAKE_CUDA_MAJOR=9               compute capability, before the point
 *   FAKE_CUDA_LAUNCH_NS=2000        device time of a kernel that does nothing
 *   FAKE_CUDA_SUBMIT_NS=0           host time of each launch, spent spinning
 *   FAKE_CUDA_EVENT_NS=500          device time of an event record
 *   FAKE_CUDA_CLOCK_MHZ=1000        SM clock: what `spin` counts
 *   FAKE_CUDA_GBPS=10               bandwidth of copies and memsets
 *   FAKE_CUDA_FAIL_LAUNCH_AFTER=n   every launch after the first n fails with a sticky error
 *   FAKE_CUDA_FAIL_CODE=719         which one
 *   FAKE_CUDA_HANG_LAUNCH_AFTER=n   the first n launches end, the next never does
 *   FAKE_CUDA_CRASH_LAUNCH_AFTER=n  the process aborts at the launch after n
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int Status;
typedef uint64_t u64;
typedef uint32_t u32;
typedef int64_t ns_t;

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100,
       INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_PTX = 218,
       INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, CONTEXT_ACTIVE = 708 };

#define DEPTH 1024 /* launches that fit into a stream before the host has to wait */
#define CUBIN_MAGIC "\177ELF fake cubin\n"

enum Kind { KERNEL, FILL, HOLD, NEVER, RECORD, COPY, SET };

typedef struct Event { int recorded; u64 pending; ns_t stamp; } Event;

typedef struct Op {
    enum Kind kind;
    ns_t submitted, duration;
    void *target, *source;
    u64 count, value;
    ns_t limit;
} Op;

typedef struct Graph { size_t n, room; Op *ops; } Graph;

typedef struct Stream {
    ns_t end;                 /* when the last resolved work ends */
    ns_t ends[DEPTH];         /* of the last DEPTH resolved ones */
    u64 resolved, queued;     /* counts; queue[resolved % DEPTH] is the next one to resolve */
    Op queue[DEPTH];
    Graph *capture;
    struct Stream *next;
} Stream;

typedef struct Function { char name[64]; } Function;
typedef struct Module { char *text; Function *functions[64]; int n; } Module;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t watcher_once = PTHREAD_ONCE_INIT;
static Stream null_stream, *streams = &null_stream;
static int initialised, retained, holds;
static unsigned context_flags;
static u64 n_launches;
static Status sticky;
static __thread void *current_context;
static int context_token;

static long long setting(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

/* The settings that every launch needs, read once. */
static struct { ns_t launch, submit, event; double clock_ghz, gbps; long long fail, hang, crash; int code; } fake;

static void read_settings(void) {
    fake.launch = setting("FAKE_CUDA_LAUNCH_NS", 2000);
    fake.submit = setting("FAKE_CUDA_SUBMIT_NS", 0);
    fake.event = setting("FAKE_CUDA_EVENT_NS", 500);
    fake.clock_ghz = setting("FAKE_CUDA_CLOCK_MHZ", 1000) / 1000.0;
    fake.gbps = (double)setting("FAKE_CUDA_GBPS", 10);
    fake.fail = setting("FAKE_CUDA_FAIL_LAUNCH_AFTER", -1);
    fake.hang = setting("FAKE_CUDA_HANG_LAUNCH_AFTER", -1);
    fake.crash = setting("FAKE_CUDA_CRASH_LAUNCH_AFTER", -1);
    fake.code = (int)setting("FAKE_CUDA_FAIL_CODE", 719);
}

static ns_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void rest(ns_t remaining) { /* sleep through long waits, spin through the last 100 us */
    if (remaining > 150000) {
        ns_t sleep = remaining - 100000;
        struct timespec t = {sleep / 1000000000LL, sleep % 1000000000LL};
        nanosleep(&t, NULL);
    }
}

static u32 hashed(u32 i, u32 seed) {
    u32 x = i ^ seed;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return (x ^ (x >> 16)) | 1u;
}

/* ---- the timeline; the lock is held in all of these ---- */

static void happen(Op *op, ns_t end) { /* what the work does to memory and events */
    if (op->kind == COPY) memmove(op->target, op->source, op->count);
    if (op->kind == SET) for (u64 i = 0; i < op->count; i++) ((u32 *)op->target)[i] = (u32)op->value;
    if (op->kind == FILL) for (u64 i = 0; i < op->count; i++) ((u32 *)op->target)[i] = hashed((u32)i, (u32)op->value);
    if (op->kind == HOLD) holds--;
    if (op->kind == RECORD) {
        Event *event = op->target;
        event->stamp = end;
        event->pending--;
    }
}

/* When the work that starts at `start` ends, or -1 while that is not known. */
static ns_t end_of(Op *op, ns_t start, ns_t now) {
    if (op->kind == NEVER) return -1;
    if (op->kind != HOLD) return start + op->duration;
    volatile u32 *flag = op->target;
    if (now < start) return -1;
    if (now - start >= op->limit) {
        flag[1] = (u32)op->value;
        return start + op->limit;
    }
    return (int32_t)(flag[0] - (u32)op->value) >= 0 ? now : -1;
}

static void resolve(Stream *s, ns_t now) {
    while (s->resolved < s->queued) {
        Op *op = &s->queue[s->resolved % DEPTH];
        ns_t start = op->submitted > s->end ? op->submitted : s->end;
        ns_t end = end_of(op, start, now);
        if (end < 0) return;
        happen(op, end);
        s->ends[s->resolved % DEPTH] = s->end = end;
        s->resolved++;
    }
}

static void *watch(void *nothing) { /* sees the flags of holds while the host does other things */
    for (;;) {
        struct timespec t = {0, 20000};
        nanosleep(&t, NULL);
        pthread_mutex_lock(&lock);
        if (holds) for (Stream *s = streams; s; s = s->next) resolve(s, now_ns());
        else t.tv_nsec = 1000000;
        pthread_mutex_unlock(&lock);
        if (!holds) nanosleep(&t, NULL);
    }
    return nothing;
}

static void start_watcher(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, watch, NULL);
    pthread_detach(thread);
}

static Status submit(Stream *s, Op op) { /* takes the lock itself */
    if (!s) s = &null_stream;
    pthread_mutex_lock(&lock);
    if (s->capture) {
        Graph *graph = s->capture;
        if (graph->n == graph->room) {
            graph->room = graph->room ? 2 * graph->room : 16;
            graph->ops = realloc(graph->ops, graph->room * sizeof(Op));
        }
        graph->ops[graph->n++] = op;
        pthread_mutex_unlock(&lock);
        return OK;
    }
    for (;;) { /* a full queue makes the host wait */
        ns_t now = now_ns();
        resolve(s, now);
        int room = s->queued - s->resolved < DEPTH;
        ns_t oldest = s->queued >= DEPTH && room ? s->ends[s->queued % DEPTH] : 0;
        if (room && oldest <= now) break;
        pthread_mutex_unlock(&lock);
        rest(room ? oldest - now : 200000);
        pthread_mutex_lock(&lock);
    }
    op.submitted = now_ns();
    if (op.kind == RECORD) {
        Event *event = op.target;
        event->recorded = 1;
        event->pending++;
    }
    if (op.kind == HOLD) holds++;
    s->queue[s->queued++ % DEPTH] = op;
    resolve(s, op.submitted);
    pthread_mutex_unlock(&lock);
    if (op.kind == HOLD) pthread_once(&watcher_once, start_watcher);
    return OK;
}

static int finished(Stream *s, ns_t *remaining) {
    pthread_mutex_lock(&lock);
    ns_t now = now_ns();
    resolve(s, now);
    int done = s->resolved == s->queued && s->end <= now;
    *remaining = s->resolved == s->queued ? s->end - now : 0;
    pthread_mutex_unlock(&lock);
    return done;
}

static Status wait_stream(Stream *s) {
    ns_t remaining;
    while (!finished(s, &remaining)) rest(remaining);
    return sticky;
}

/* ---- driver, device, context ---- */

#define READY do { if (!initialised) return NOT_INITIALIZED; if (sticky) return sticky; } while (0)
#define CONTEXT do { READY; if (!current_context) return INVALID_CONTEXT; } while (0)

static int n_devices(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (!*visible || !strcmp(visible, "-1"))) return 0;
    return (int)setting("FAKE_CUDA_DEVICES", 1);
}

Status cuInit(unsigned flags) {
    Status error = (Status)setting("FAKE_CUDA_INIT_ERROR", 0);
    const char *fate = getenv("FAKE_CUDA_INIT_ERROR");
    if (fate && !strcmp(fate, "abort")) abort();
    while (fate && !strcmp(fate, "hang")) sleep(1);
    if (flags) return INVALID_VALUE;
    if (error) return error;
    if (!n_devices()) return NO_DEVICE;
    read_settings();
    if (!initialised && setting("FAKE_CUDA_ACTIVE_FLAGS", -1) >= 0) {
        context_flags = (unsigned)setting("FAKE_CUDA_ACTIVE_FLAGS", 0);
        retained = 1;
    }
    initialised = 1;
    return OK;
}

Status cuModuleGetLoadingMode(int *mode) { /* 1 is eager, 2 is lazy */
    const char *said = getenv("FAKE_CUDA_LOADING"), *asked = getenv("CUDA_MODULE_LOADING");
    *mode = said ? (strcmp(said, "eager") ? 2 : 1) : asked && !strcmp(asked, "EAGER") ? 1 : 2;
    return OK;
}

Status cuDriverGetVersion(int *version) {
    *version = (int)setting("FAKE_CUDA_VERSION", 13000);
    return OK;
}

static const struct { int code; const char *name; } names[] = {
    {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"}, {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {218, "CUDA_ERROR_INVALID_PTX"},
    {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {999, "CUDA_ERROR_UNKNOWN"}};

Status cuGetErrorName(Status code, const char **name) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) { *name = names[i].name; return OK; }
    *name = NULL;
    return INVALID_VALUE;
}

Status cuGetErrorString(Status code, const char **text) { return cuGetErrorName(code, text); }

Status cuDeviceGetCount(int *count) { READY; *count = n_devices(); return OK; }

Status cuDeviceGet(int *device, int ordinal) {
    READY;
    if (ordinal < 0 || ordinal >= n_devices()) return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

Status cuDeviceGetName(char *name, int length, int device) {
    READY;
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return OK;
}

Status cuDeviceGetUuid(unsigned char *uuid, int device) {
    READY;
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0xfa + 16 * i);
    uuid[15] = (unsigned char)device;
    return OK;
}

Status cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    Status status = cuDeviceGetUuid(uuid, device);
    if (!status && setting("FAKE_CUDA_MIG", 0)) uuid[0] = 0x11;
    return status;
}

Status cuDeviceTotalMem_v2(size_t *nbytes, int device) {
    READY;
    (void)device;
    *nbytes = (size_t)setting("FAKE_CUDA_TOTAL_NBYTES", 1LL << 30);
    return OK;
}

Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    READY;
    (void)device;
    switch (attribute) {
        case 1: *value = 1024; break;      /* threads a block */
        case 13: *value = (int)setting("FAKE_CUDA_CLOCK_MHZ", 1000) * 1000; break;
        case 16: *value = 4; break;        /* multiprocessors */
        case 38: *value = 1 << 20; break;  /* L2 */
        case 75: *value = (int)setting("FAKE_CUDA_MAJOR", 9); break;
        case 76: *value = 0; break;
        default: *value = 0;
    }
    return OK;
}

Status cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    READY;
    (void)device;
    if (retained) return CONTEXT_ACTIVE;
    context_flags = flags;
    return OK;
}

Status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    READY;
    (void)device;
    *flags = context_flags;
    *active = retained > 0;
    return OK;
}

Status cuDevicePrimaryCtxRetain(void **context, int device) {
    READY;
    (void)device;
    retained++;
    *context = &context_token;
    return OK;
}

Status cuDevicePrimaryCtxRelease_v2(int device) {
    READY;
    (void)device;
    if (retained <= 0) return INVALID_CONTEXT;
    retained--;
    return OK;
}

Status cuCtxSetCurrent(void *context) { READY; current_context = context; return OK; }
Status cuCtxGetCurrent(void **context) { READY; *context = current_context; return OK; }
Status cuCtxGetDevice(int *device) { CONTEXT; *device = 0; return OK; }

Status cuCtxSynchronize(void) {
    CONTEXT;
    for (Stream *s = streams; s; s = s->next) wait_stream(s);
    return sticky;
}

/* ---- streams and events ---- */

Status cuStreamCreate(Stream **stream, unsigned flags) {
    CONTEXT;
    (void)flags;
    Stream *made = calloc(1, sizeof(Stream));
    pthread_mutex_lock(&lock);
    made->next = null_stream.next;
    null_stream.next = made;
    pthread_mutex_unlock(&lock);
    *stream = made;
    return OK;
}

Status cuStreamDestroy_v2(Stream *stream) { CONTEXT; (void)stream; return OK; } /* kept: it may be running */

Status cuStreamSynchronize(Stream *stream) { CONTEXT; return wait_stream(stream ? stream : &null_stream); }

Status cuStreamQuery(Stream *stream) {
    CONTEXT;
    ns_t remaining;
    return finished(stream ? stream : &null_stream, &remaining) ? OK : NOT_READY;
}

Status cuEventCreate(Event **event, unsigned flags) {
    CONTEXT;
    (void)flags;
    *event = calloc(1, sizeof(Event));
    return OK;
}

Status cuEventDestroy_v2(Event *event) { CONTEXT; (void)event; return OK; } /* kept: it may be pending */

Status cuEventRecord(Event *event, Stream *stream) {
    CONTEXT;
    if (!event) return INVALID_HANDLE;
    return submit(stream, (Op){.kind = RECORD, .duration = fake.event, .target = event});
}

static int event_done(Event *event, ns_t *remaining) {
    pthread_mutex_lock(&lock);
    ns_t now = now_ns();
    for (Stream *s = streams; s; s = s->next) resolve(s, now);
    int done = !event->pending && (!event->recorded || event->stamp <= now);
    *remaining = event->pending ? 0 : event->stamp - now;
    pthread_mutex_unlock(&lock);
    return done;
}

Status cuEventQuery(Event *event) {
    CONTEXT;
    ns_t remaining;
    return event_done(event, &remaining) ? OK : NOT_READY;
}

Status cuEventSynchronize(Event *event) {
    CONTEXT;
    ns_t remaining;
    while (!event_done(event, &remaining)) rest(remaining);
    return sticky;
}

Status cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
    CONTEXT;
    ns_t remaining;
    if (!start || !end) return INVALID_HANDLE;
    if (!start->recorded || !end->recorded) return INVALID_HANDLE;
    if (!event_done(start, &remaining) || !event_done(end, &remaining)) return NOT_READY;
    *milliseconds = (float)((double)(end->stamp - start->stamp) * 1e-6);
    return OK;
}

/* ---- memory ---- */

static size_t in_use;

Status cuMemAlloc_v2(u64 *pointer, size_t nbytes) {
    CONTEXT;
    if (!nbytes) return INVALID_VALUE;
    if ((long long)nbytes > setting("FAKE_CUDA_TOTAL_NBYTES", 1LL << 30)) return OUT_OF_MEMORY;
    void *memory = aligned_alloc(256, (nbytes + 255) / 256 * 256);
    *pointer = (u64)(uintptr_t)memory;
    in_use += memory ? malloc_usable_size(memory) : 0;
    return memory ? OK : OUT_OF_MEMORY;
}

Status cuMemFree_v2(u64 pointer) {
    CONTEXT;
    for (Stream *s = streams; s; s = s->next) wait_stream(s); /* the real one waits too */
    in_use -= pointer ? malloc_usable_size((void *)(uintptr_t)pointer) : 0;
    free((void *)(uintptr_t)pointer);
    return OK;
}

Status cuMemGetInfo_v2(size_t *unused, size_t *total) {
    CONTEXT;
    *total = (size_t)setting("FAKE_CUDA_TOTAL_NBYTES", 1LL << 30);
    *unused = *total > in_use ? *total - in_use : 0;
    return OK;
}

Status cuMemHostAlloc(void **memory, size_t nbytes, unsigned flags) {
    CONTEXT;
    (void)flags;
    *memory = aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
    return *memory ? OK : OUT_OF_MEMORY;
}

Status cuMemHostGetDevicePointer_v2(u64 *pointer, void *memory, unsigned flags) {
    CONTEXT;
    if (flags) return INVALID_VALUE;
    *pointer = (u64)(uintptr_t)memory;
    return OK;
}

Status cuMemFreeHost(void *memory) { CONTEXT; free(memory); return OK; }

static ns_t transfer(size_t nbytes) { return 1000 + (ns_t)((double)nbytes / fake.gbps); }

Status cuMemcpyAsync(u64 target, u64 source, size_t nbytes, Stream *stream) {
    CONTEXT;
    return submit(stream, (Op){.kind = COPY, .duration = transfer(nbytes), .count = nbytes,
                               .target = (void *)(uintptr_t)target, .source = (void *)(uintptr_t)source});
}

Status cuMemcpyHtoD_v2(u64 target, const void *source, size_t nbytes) {
    CONTEXT;
    Status status = cuMemcpyAsync(target, (u64)(uintptr_t)source, nbytes, NULL);
    return status ? status : wait_stream(&null_stream);
}

Status cuMemcpyDtoH_v2(void *target, u64 source, size_t nbytes) {
    CONTEXT;
    Status status = cuMemcpyAsync((u64)(uintptr_t)target, source, nbytes, NULL);
    return status ? status : wait_stream(&null_stream);
}

Status cuMemsetD32Async(u64 target, unsigned value, size_t count, Stream *stream) {
    CONTEXT;
    return submit(stream, (Op){.kind = SET, .duration = transfer(4 * count), .count = count, .value = value,
                               .target = (void *)(uintptr_t)target});
}

/* ---- code: a "cubin" is a magic line and the PTX it came from ---- */

Status cuLinkCreate_v2(unsigned n, void *options, void *values, char ***state) {
    CONTEXT;
    (void)n, (void)options, (void)values;
    *state = calloc(1, sizeof(char *));
    return OK;
}

Status cuLinkAddData_v2(char **state, int type, void *data, size_t size, const char *name, unsigned n, void *options, void *values) {
    CONTEXT;
    (void)name, (void)n, (void)options, (void)values;
    const char *ptx = data;
    if (type != 1 || !size || ptx[size - 1] || strncmp(ptx, ".version ", 9)) return INVALID_PTX;
    if (asprintf(state, "%s%s", CUBIN_MAGIC, ptx) < 0) return OUT_OF_MEMORY;
    return OK;
}

Status cuLinkComplete(char **state, void **cubin, size_t *size) {
    CONTEXT;
    if (!*state) return INVALID_VALUE;
    *cubin = *state;
    *size = strlen(*state) + 1;
    return OK;
}

Status cuLinkDestroy(char **state) { CONTEXT; free(*state); free(state); return OK; }

Status cuModuleLoadData(Module **module, const void *image) {
    CONTEXT;
    if (strncmp(image, CUBIN_MAGIC, strlen(CUBIN_MAGIC))) return INVALID_IMAGE;
    *module = calloc(1, sizeof(Module));
    (*module)->text = strdup(image);
    return OK;
}

Status cuModuleUnload(Module *module) { CONTEXT; (void)module; return OK; }

Status cuModuleGetFunction(Function **function, Module *module, const char *name) {
    CONTEXT;
    char entry[96];
    for (int i = 0; i < module->n; i++)
        if (!strcmp(module->functions[i]->name, name)) { *function = module->functions[i]; return OK; }
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!strstr(module->text, entry) || module->n == 64) return NOT_FOUND;
    *function = module->functions[module->n++] = calloc(1, sizeof(Function));
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    return OK;
}

#define ARGUMENT(i, type) (*(type *)parameters[i])

static Op kernel(const char *name, void **parameters) {
    Op op = {.kind = KERNEL, .duration = fake.launch};
    if (!strncmp(name, "args_", 5)) { /* read them, as the real one does */
        char sink[4096];
        memcpy(sink, parameters[0], (size_t)atoi(name + 5));
        __asm__ volatile("" : : "r"(sink) : "memory");
    } else if (!strcmp(name, "spin")) {
        op.duration += (ns_t)((double)ARGUMENT(0, u64) / fake.clock_ghz);
    } else if (!strcmp(name, "fill")) {
        op = (Op){.kind = FILL, .target = (void *)(uintptr_t)ARGUMENT(0, u64), .count = ARGUMENT(1, u64),
                  .value = ARGUMENT(2, u32), .duration = transfer(4 * ARGUMENT(1, u64))};
    } else if (!strncmp(name, "copy_", 5)) { /* to, from, nbytes */
        op = (Op){.kind = COPY, .target = (void *)(uintptr_t)ARGUMENT(0, u64), .count = ARGUMENT(2, u64),
                  .source = (void *)(uintptr_t)ARGUMENT(1, u64), .duration = transfer(ARGUMENT(2, u64))};
    } else if (!strcmp(name, "hold")) {
        op = (Op){.kind = HOLD, .target = (void *)(uintptr_t)ARGUMENT(0, u64), .value = ARGUMENT(1, u32),
                  .limit = (ns_t)ARGUMENT(2, u64)};
    }
    return op;
}

Status cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, Stream *stream, void **parameters, void **extra) {
    CONTEXT;
    if (!function) return INVALID_HANDLE;
    if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || shared > 49152 || extra) return INVALID_VALUE;
    ns_t start = fake.submit ? now_ns() : 0;
    Op op = kernel(function->name, parameters);
    long long launch = (long long)__atomic_fetch_add(&n_launches, 1, __ATOMIC_RELAXED);
    if (fake.crash >= 0 && launch >= fake.crash) abort();
    if (fake.fail >= 0 && launch >= fake.fail) return sticky = fake.code;
    if (fake.hang >= 0 && launch >= fake.hang) op.kind = NEVER;
    Status status = submit(stream, op);
    while (fake.submit && now_ns() - start < fake.submit) {}
    return status;
}

/* ---- graphs ---- */

Status cuStreamBeginCapture_v2(Stream *stream, int mode) {
    CONTEXT;
    (void)mode;
    if (!stream || stream->capture) return INVALID_VALUE;
    stream->capture = calloc(1, sizeof(Graph));
    return OK;
}

Status cuStreamIsCapturing(Stream *stream, int *capturing) {
    CONTEXT;
    *capturing = stream && stream->capture;
    return OK;
}

Status cuStreamEndCapture(Stream *stream, Graph **graph) {
    CONTEXT;
    if (!stream || !stream->capture) return INVALID_VALUE;
    *graph = stream->capture;
    stream->capture = NULL;
    return OK;
}

Status cuGraphInstantiateWithFlags(Graph **exec, Graph *graph, unsigned long long flags) {
    CONTEXT;
    if (flags) return INVALID_VALUE;
    *exec = malloc(sizeof(Graph));
    **exec = (Graph){graph->n, graph->n, malloc(graph->n * sizeof(Op) + 1)};
    memcpy((*exec)->ops, graph->ops, graph->n * sizeof(Op));
    return OK;
}

Status cuGraphLaunch(Graph *exec, Stream *stream) {
    CONTEXT;
    Op whole = {.kind = KERNEL};
    int plain = 1; /* a graph of kernels alone is one piece of work; else its parts follow each other */
    for (size_t i = 0; i < exec->n; i++) {
        whole.duration += exec->ops[i].duration;
        plain &= exec->ops[i].kind == KERNEL;
    }
    if (plain) return submit(stream, whole);
    for (size_t i = 0; i < exec->n; i++) submit(stream, exec->ops[i]);
    return OK;
}

Status cuGraphDestroy(Graph *graph) { CONTEXT; free(graph->ops); free(graph); return OK; }
Status cuGraphExecDestroy(Graph *exec) { return cuGraphDestroy(exec); }
