/* A pretended cuBLAS: products of small matrices in the pretended device's memory, which is the host's.
 *
 * FAKE_CUBLAS_WRONG=1: the last element of a product is wrong.
 */
#include <stdint.h>
#include <stdlib.h>

enum { OK = 0, INVALID_VALUE = 7 };

int cublasCreate_v2(void **handle) { *handle = malloc(1); return OK; }
int cublasDestroy_v2(void *handle) { free(handle); return OK; }
int cublasSetStream_v2(void *handle, void *stream) { (void)handle; (void)stream; return OK; }

int cublasGetProperty(int kind, int *value) {
    if (kind < 0 || kind > 2) return INVALID_VALUE;
    *value = (int[]){12, 4, 5}[kind];
    return OK;
}

int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                   const float *b, int ldb, const float *beta, float *c, int ldc) {
    if (!handle || ta || tb || m != n || n != k || lda != n || ldb != n || ldc != n) return INVALID_VALUE;
    if (*alpha != 1.0f || *beta != 0.0f) return INVALID_VALUE;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) {
            double sum = 0.0;
            for (int l = 0; l < n; l++) sum += (double)a[l * n + i] * b[j * n + l];
            c[j * n + i] = (float)sum;
        }
    if (getenv("FAKE_CUBLAS_WRONG")) c[n * n - 1] += 1.0f;
    return OK;
}
