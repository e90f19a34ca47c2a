"""The parts of a report: each function makes a section of `bench_lib.pages.page` out of what was compared."""
