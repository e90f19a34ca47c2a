/* A pretended libcudnn for tests: the convolution calls of the legacy API on host memory.
 *
 * Like the real one it opens its parts and cuBLASLt by bare name when first needed and ends the
 * process when it finds none; its graph part knows what it was built for, the library is the same file in
 * all builds; and its engines look for NVRTC under two names. Compiled with -DLIBRARY as libcudnn.so.9, with
 * -DGRAPH and -DENGINES as these parts, once for each other part without.
 * Environment: FAKE_CUDNN_WRONG=1 doubles the last output; FAKE_CUDNN_STALE=1 writes no output;
 * FAKE_CUDNN_LEAK=1 offers a tensor-core algorithm first even under FMA math; FAKE_CUDNN_STATUS=n is what
 * the choosing calls return.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef LIBRARY

#define EXPORT __attribute__((visibility("default")))

enum { FLOAT = 0, HALF = 2, NCHW = 0, NHWC = 1 };
enum { DEFAULT_MATH = 0, TENSOR_OP = 1, FMA = 3 };
enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };

typedef struct { int type, n, sizes[5], strides[5]; } Tensor;
typedef struct { int type, format, n, sizes[5]; } Filter;
typedef struct { int n, pad[3], stride[3], dilation[3], mode, compute, groups, math; } Convolution;
typedef struct { int algo, status; float time; size_t memory; int determinism, math, reserved[3]; } Perf;
typedef struct { void *stream; } Handle;

static void *need(const char *name) {
    void *found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!found) {
        fprintf(stderr, "Could not load library %s\n", name);
        abort();
    }
    return found;
}

static int built(const char *what) { return *(int *)dlsym(need("libcudnn_graph.so.9"), what); }

static int flag(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

EXPORT size_t cudnnGetVersion(void) { return built("fake_cudnn_version"); }
EXPORT size_t cudnnGetCudartVersion(void) { return built("fake_cudnn_cudart") * 1000; }
EXPORT const char *cudnnGetErrorString(int status) {
    return status == SUCCESS ? "CUDNN_STATUS_SUCCESS"
         : status >= NOT_SUPPORTED && status < 4000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM";
}

EXPORT int cudnnCreate(Handle **handle) {
    need("libcudnn_cnn.so.9");
    char name[64];
    snprintf(name, sizeof name, "libcublasLt.so.%d", built("fake_cudnn_cudart"));
    need(name);
    *handle = calloc(1, sizeof(Handle));
    return SUCCESS;
}
EXPORT int cudnnDestroy(Handle *handle) { free(handle); return SUCCESS; }
EXPORT int cudnnSetStream(Handle *handle, void *stream) { handle->stream = stream; return SUCCESS; }

EXPORT int cudnnCreateTensorDescriptor(Tensor **t) { *t = calloc(1, sizeof **t); return SUCCESS; }
EXPORT int cudnnCreateFilterDescriptor(Filter **f) { *f = calloc(1, sizeof **f); return SUCCESS; }
EXPORT int cudnnCreateConvolutionDescriptor(Convolution **c) { *c = calloc(1, sizeof **c); return SUCCESS; }
EXPORT int cudnnDestroyTensorDescriptor(Tensor *t) { free(t); return SUCCESS; }
EXPORT int cudnnDestroyFilterDescriptor(Filter *f) { free(f); return SUCCESS; }
EXPORT int cudnnDestroyConvolutionDescriptor(Convolution *c) { free(c); return SUCCESS; }

EXPORT int cudnnSetTensorNdDescriptor(Tensor *t, int type, int n, const int *sizes, const int *strides) {
    if (n < 4 || n > 5) return BAD_PARAM;
    t->type = type, t->n = n;
    for (int i = 0; i < n; i++) t->sizes[i] = sizes[i], t->strides[i] = strides[i];
    return SUCCESS;
}
EXPORT int cudnnSetFilterNdDescriptor(Filter *f, int type, int format, int n, const int *sizes) {
    if (n < 4 || n > 5) return BAD_PARAM;
    f->type = type, f->format = format, f->n = n;
    for (int i = 0; i < n; i++) f->sizes[i] = sizes[i];
    return SUCCESS;
}
EXPORT int cudnnSetConvolutionNdDescriptor(Convolution *c, int n, const int *pad, const int *stride,
                                           const int *dilation, int mode, int compute) {
    c->n = n, c->mode = mode, c->compute = compute, c->groups = 1;
    for (int i = 0; i < n; i++) c->pad[i] = pad[i], c->stride[i] = stride[i], c->dilation[i] = dilation[i];
    return SUCCESS;
}
EXPORT int cudnnSetConvolutionGroupCount(Convolution *c, int groups) { c->groups = groups; return SUCCESS; }
EXPORT int cudnnSetConvolutionMathType(Convolution *c, int math) { c->math = math; return SUCCESS; }

static int offer(const Convolution *c, int found, int room, int *count, Perf *perf) {
    int status = flag("FAKE_CUDNN_STATUS"), math = c->math == DEFAULT_MATH ? TENSOR_OP : c->math, n = 0;
    if (status) return status;
    Perf all[] = {
        {7, NOT_SUPPORTED, -1, 0, 1, math, {0}},               /* offered, but of no use here */
        {1, SUCCESS, found ? 0.5f : -1, 4096, 1, TENSOR_OP, {0}}, /* only with FAKE_CUDNN_LEAK */
        {found ? 0 : 1, SUCCESS, found ? 0.25f : -1, found ? 0 : 1024, 1, math, {0}},
        {2, SUCCESS, found ? 0.75f : -1, 2048, 0, math, {0}},
    };
    for (int i = 0; i < 4 && n < room; i++)
        if (i != 1 || flag("FAKE_CUDNN_LEAK")) perf[n++] = all[i];
    *count = n;
    return SUCCESS;
}
EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(Handle *h, const Tensor *x, const Filter *w, const Convolution *c,
                                                  const Tensor *y, int room, int *count, Perf *perf) {
    return h && x && w && y ? offer(c, 0, room, count, perf) : BAD_PARAM;
}
EXPORT int cudnnFindConvolutionForwardAlgorithm(Handle *h, const Tensor *x, const Filter *w, const Convolution *c,
                                                const Tensor *y, int room, int *count, Perf *perf) {
    return h && x && w && y ? offer(c, 1, room, count, perf) : BAD_PARAM;
}
EXPORT int cudnnGetConvolutionForwardWorkspaceSize(Handle *h, const Tensor *x, const Filter *w,
                                                   const Convolution *c, const Tensor *y, int algo, size_t *nbytes) {
    *nbytes = algo * 1024;
    return h && x && w && c && y ? SUCCESS : BAD_PARAM;
}

static double get(const void *data, int type, long at) {
    return type == HALF ? (double)((const _Float16 *)data)[at] : ((const float *)data)[at];
}
static void put(void *data, int type, long at, double value) {
    if (type == HALF) ((_Float16 *)data)[at] = (_Float16)value; else ((float *)data)[at] = (float)value;
}

/* Place `at` as coordinates of `sizes`, last fastest. */
static void coordinates(long at, int n, const int *sizes, int *into) {
    for (int i = n - 1; i >= 0; i--) into[i] = at % sizes[i], at /= sizes[i];
}

/* One output number: over the taps (two dimensions are three with one tap in the first) and channels. */
static double one(const Tensor *x, const void *xs, const Filter *w, const void *ws, const Convolution *c, const int *o) {
    int width = w->sizes[1], first = o[1] / (w->sizes[0] / c->groups) * width, taps[3] = {1, 1, 1}, from = 3 - c->n;
    long all = 1, step = w->format == NHWC ? 1 : 0, tap = 0;
    for (int d = 0; d < c->n; d++) taps[from + d] = w->sizes[2 + d], all *= w->sizes[2 + d];
    double sum = 0;
    for (int i = 0; i < taps[0]; i++)
        for (int j = 0; j < taps[1]; j++)
            for (int k = 0; k < taps[2]; k++, tap++) {
                int at[3] = {i, j, k}, inside = 1;
                long place = (long)o[0] * x->strides[0] + (long)first * x->strides[1];
                for (int d = 0; d < c->n; d++) {
                    int p = o[2 + d] * c->stride[d] - c->pad[d] + at[from + d] * c->dilation[d];
                    inside &= p >= 0 && p < x->sizes[2 + d];
                    place += (long)p * x->strides[2 + d];
                }
                for (int channel = 0; inside && channel < width; channel++) {
                    long weight = step ? (o[1] * all + tap) * width + channel : ((long)o[1] * width + channel) * all + tap;
                    sum += get(xs, x->type, place + (long)channel * x->strides[1]) * get(ws, w->type, weight);
                }
            }
    return sum;
}

EXPORT int cudnnConvolutionForward(Handle *h, const float *alpha, const Tensor *x, const void *xs, const Filter *w,
                                   const void *ws, const Convolution *c, int algo, void *space, size_t nbytes,
                                   const float *beta, const Tensor *y, void *ys) {
    if (!h->stream || *alpha != 1 || *beta != 0 || c->mode != 1 || c->compute != FLOAT) return BAD_PARAM;
    if (nbytes < (size_t)algo * 1024 || (algo && !space)) return BAD_PARAM;
    if (flag("FAKE_CUDNN_STALE")) return SUCCESS;
    long n = 1;
    for (int i = 0; i < y->n; i++) n *= y->sizes[i];
    for (long i = 0; i < n; i++) {
        int o[5];
        coordinates(i, y->n, y->sizes, o);
        long at = 0;
        for (int d = 0; d < y->n; d++) at += (long)o[d] * y->strides[d];
        double value = one(x, xs, w, ws, c, o);
        put(ys, y->type, at, flag("FAKE_CUDNN_WRONG") && i == n - 1 ? 2 * value + 1 : value);
    }
    return SUCCESS;
}

#elif defined GRAPH
const int fake_cudnn_version = VERSION, fake_cudnn_cudart = CUDART;
#elif defined ENGINES
__attribute__((constructor)) static void open_nvrtc(void) {
    char name[64];
    snprintf(name, sizeof name, CUDART < 12 ? "libnvrtc.so.%d.8" : "libnvrtc.so.%d", CUDART);
    if (!dlopen(name, RTLD_NOW)) dlopen("libnvrtc.so", RTLD_NOW);
}
#else
int fake_cudnn_part(void) { return 0; }
#endif
