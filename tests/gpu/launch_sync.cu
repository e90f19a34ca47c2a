// The suite's launch_sync, written as a plain CUDA C++ program: the yardstick of test_launch_sync.py.
// Prints the median of SAMPLES samples of CALLS (launch, wait) pairs, in seconds a pair.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

extern "C" __global__ void empty() {}

static void check(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::exit(1);
  }
}

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main() {
  const int SAMPLES = 50, CALLS = 100;
  const double WARMUP_SECONDS = 0.3;
  check(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  auto sample = [&] {
    const double start = now();
    for (int i = 0; i < CALLS; ++i) {
      empty<<<1, 1, 0, stream>>>();
      cudaStreamSynchronize(stream);
    }
    return (now() - start) / CALLS;
  };
  for (const double start = now(); now() - start < WARMUP_SECONDS;) sample();
  std::vector<double> seconds(SAMPLES);
  for (double& s : seconds) s = sample();
  check(cudaGetLastError());
  std::nth_element(seconds.begin(), seconds.begin() + SAMPLES / 2, seconds.end());
  std::printf("%.12g\n", seconds[SAMPLES / 2]);
}
