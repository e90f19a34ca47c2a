"""Several processes on one GPU: time-sliced, and as clients of NVIDIA's multi-process service (MPS)."""
