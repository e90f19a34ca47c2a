"""The GPU as this suite sees it: driver, runtime, kernels, telemetry."""
