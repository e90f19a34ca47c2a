"""The settings of a run that was measured for a profiler, as they are stored."""

NVTX = "nvtx"  # what made the ranges of --nvtx; without the option there is no such setting
PROFILER = "doctor.profiler"  # the profiler that was attached, which only --nvtx allows
