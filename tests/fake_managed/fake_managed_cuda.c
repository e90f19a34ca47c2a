/* The pretended driver of ../fake_cuda with managed memory that really moves, and the memory kernels.
 *
 * Managed memory is one file mapped twice: the CPU's addresses, and an alias through which the
 * "GPU" works. A page that moves to the GPU is dropped from the CPU's page table (its bytes stay in
 * the file), so that /proc/self/pagemap says what it says of real managed memory.
 *
 *   FAKE_UVM_CONCURRENT=1    concurrentManagedAccess
 *   FAKE_UVM_PAGEABLE=0      pageableMemoryAccess
 *   FAKE_UVM_FAULT_NS=1000   device time of a page that a kernel makes move
 */
#define _GNU_SOURCE
#include <stddef.h>
#define cuDeviceGetAttribute plain_cuDeviceGetAttribute
#define cuLaunchKernel plain_cuLaunchKernel
#define cuMemcpyAsync plain_cuMemcpyAsync
#include "../fake_cuda/fake_cuda.c"
#undef cuDeviceGetAttribute
#undef cuLaunchKernel
#undef cuMemcpyAsync
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, NOT_SUPPORTED = 801, READ_MOSTLY = 1, ACCESSED_BY = 5 };

typedef struct Region { char *cpu, *gpu; size_t nbytes; int read_mostly, accessed_by, mapped; struct Region *next; } Region;

static Region *regions;
static int pagemap = -1;

static Region *region_of(u64 address) {
    for (Region *r = regions; r; r = r->next)
        if (address >= (u64)r->cpu && address < (u64)r->cpu + r->nbytes) return r;
    return NULL;
}

/* Where the GPU finds an address: managed memory through the alias, all else as it is. */
static void *seen(u64 address) {
    Region *r = region_of(address);
    return r ? r->gpu + (address - (u64)r->cpu) : (void *)(uintptr_t)address;
}

static int present(u64 address) {
    u64 entry = 0;
    if (pagemap < 0) pagemap = open("/proc/self/pagemap", O_RDONLY);
    return pread(pagemap, &entry, 8, (off_t)(address / PAGE * 8)) == 8 && entry >> 63;
}

/* The page leaves the CPU; 1 when it was there. */
static u64 leave(u64 address) {
    u64 page = address / PAGE * PAGE;
    if (!present(page)) return 0;
    madvise((void *)page, PAGE, MADV_DONTNEED);
    return 1;
}

/* A kernel reads or writes the word at `address`: how many pages move for it. */
static u64 access_page(u64 address, int writes) {
    Region *r = region_of(address);
    if (!r || r->mapped || (r->read_mostly && !writes)) return 0;
    return leave(address);
}

Status cuDeviceGetAttribute(int *value, int attribute, int device) {
    Status status = plain_cuDeviceGetAttribute(value, attribute, device);
    if (attribute == 83) *value = 1;
    if (attribute == 88) *value = (int)setting("FAKE_UVM_PAGEABLE", 0);
    if (attribute == 89) *value = (int)setting("FAKE_UVM_CONCURRENT", 1);
    return status;
}

Status cuMemAllocManaged(u64 *pointer, size_t nbytes, unsigned flags) {
    CONTEXT;
    if (!nbytes || flags != 1) return INVALID_VALUE;
    int file = memfd_create("managed", 0);
    if (file < 0 || ftruncate(file, (off_t)nbytes)) return OUT_OF_MEMORY;
    Region *r = calloc(1, sizeof(Region));
    r->nbytes = nbytes;
    r->cpu = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    r->gpu = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    r->next = regions;
    regions = r;
    *pointer = (u64)r->cpu;
    return OK;
}

Status fake_free_managed(u64 pointer, int *found) { /* cudaFree knows whose memory it is */
    CONTEXT;
    *found = 0;
    for (Region **at = &regions; *at; at = &(*at)->next) {
        Region *r = *at;
        if ((u64)r->cpu != pointer) continue;
        for (Stream *s = streams; s; s = s->next) wait_stream(s);
        munmap(r->cpu, r->nbytes);
        munmap(r->gpu, r->nbytes);
        *at = r->next;
        free(r);
        *found = 1;
        return OK;
    }
    return OK;
}

Status fake_prefetch(u64 pointer, size_t nbytes, int to_host, Stream *stream) {
    CONTEXT;
    if (!region_of(pointer)) return INVALID_VALUE;
    if (!setting("FAKE_UVM_CONCURRENT", 1)) return INVALID_DEVICE;
    if (to_host) madvise((void *)pointer, nbytes, MADV_POPULATE_WRITE);
    if (!to_host) region_of(pointer)->mapped = region_of(pointer)->accessed_by;
    for (u64 at = pointer; !to_host && at < pointer + nbytes; at += PAGE) leave(at);
    return submit(stream, (Op){.kind = KERNEL, .duration = transfer(nbytes)});
}

Status fake_advise(u64 pointer, int advice) {
    CONTEXT;
    Region *r = region_of(pointer);
    if (!r) return INVALID_VALUE;
    if ((advice + 1) / 2 * 2 - 1 == READ_MOSTLY) r->read_mostly = advice % 2;
    /* Unset, it leaves the GPU's mapping of what is on the CPU as it is. */
    if ((advice + 1) / 2 * 2 - 1 == ACCESSED_BY) r->accessed_by = advice % 2, r->mapped |= r->accessed_by;
    return OK;
}

Status cuMemcpyAsync(u64 target, u64 source, size_t nbytes, Stream *stream) {
    return plain_cuMemcpyAsync((u64)seen(target), (u64)seen(source), nbytes, stream);
}

/* ---- the memory kernels: done when they are queued, their time put onto the stream ---- */

static u64 slots(const char *name, void **parameters) {
    u64 base = ARGUMENT(0, u64), n = ARGUMENT(2, u64), step = ARGUMENT(3, u64), moved = 0;
    u32 *order = (u32 *)ARGUMENT(1, u64), sum = 0;
    for (u64 i = 0; i < n; i++) {
        u64 slot = base + order[i] * step;
        if (!strcmp(name, "touch_write")) { moved += access_page(slot, 1); *(u32 *)seen(slot) = ARGUMENT(4, u32); }
        if (!strcmp(name, "touch_read")) { moved += access_page(slot, 0); sum += *(u32 *)seen(slot); }
        if (!strcmp(name, "chain")) { moved += access_page(base + i * step, 1); *(u64 *)seen(base + i * step) = slot; }
    }
    if (!strcmp(name, "touch_read")) *(u32 *)ARGUMENT(4, u64) += sum;
    return moved;
}

static u64 chase(void **parameters) {
    u64 at = ARGUMENT(0, u64), moved = 0, *out = (u64 *)ARGUMENT(2, u64);
    for (u64 i = 0; i < ARGUMENT(1, u64); i++) {
        moved += access_page(at, 0);
        at = *(u64 *)seen(at);
    }
    out[0] = 500 * ARGUMENT(1, u64);
    out[1] = at;
    return moved;
}

static u64 gradient(void **parameters) {
    u64 words = ARGUMENT(0, u64), n = ARGUMENT(1, u64), moved = 0;
    float *w = seen(words);
    for (u64 i = 0; i < n; i++) w[i] = w[i] * ARGUMENT(2, float) + ARGUMENT(3, float);
    for (u64 at = words; at < words + 4 * n; at += PAGE) moved += access_page(at, 1);
    return moved;
}

Status cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, Stream *stream, void **parameters, void **extra) {
    CONTEXT;
    const char *name = function->name;
    int over_slots = !strncmp(name, "touch_", 6) || !strcmp(name, "chain");
    if (!over_slots && strcmp(name, "chase") && strcmp(name, "gradient"))
        return plain_cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
    u64 hops = strcmp(name, "chase") ? 0 : ARGUMENT(1, u64);
    u64 moved = over_slots ? slots(name, parameters) : hops ? chase(parameters) : gradient(parameters);
    ns_t duration = fake.launch + (ns_t)(moved * (u64)setting("FAKE_UVM_FAULT_NS", 1000) + 500 * hops);
    return submit(stream, (Op){.kind = KERNEL, .duration = duration});
}

Status cuMemAllocAsync(u64 *pointer, size_t nbytes, Stream *stream) { (void)stream; return cuMemAlloc_v2(pointer, nbytes); }
Status cuMemFreeAsync(u64 pointer, Stream *stream) { (void)stream; free((void *)(uintptr_t)pointer); return OK; }
