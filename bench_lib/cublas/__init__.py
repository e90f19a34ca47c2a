"""cuBLAS by path, without torch: found, loaded, and one matrix product through it."""
