"""Traces of allocations, played to torch's CUDA allocator: what it reserves for them, and what that costs."""
