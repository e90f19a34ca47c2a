"""NCCL by path: found, loaded, called through ctypes, and what its log says of a collective."""
