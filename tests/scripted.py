"""Telemetry that a test writes down."""


class Scripted:
    """Telemetry that says one thing after another, the last one for ever."""

    max_sm_clock_mhz = 2000.0

    def __init__(self, *readings):
        self.readings = list(readings)
        self.reads = 0

    def read(self):
        self.reads += 1
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
