"""The settings of a run that say how it was measured, as they are stored: their names."""

NVTX = "nvtx"  # what made the ranges of --nvtx; without the option there is no such setting
PROFILER = "doctor.profiler"  # the profiler that was attached, which only --nvtx allows
CODE = "benchmark."  # and a family: the digest of its benchmark file
