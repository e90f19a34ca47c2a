"""Charts of torch's CUDA allocator and of what runs side by side."""
