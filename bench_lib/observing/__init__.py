"""Measuring for a profiler: ranges around cases, and what a comparison says of such runs."""
