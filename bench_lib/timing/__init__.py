"""From a callable to samples: timers, the measuring loop, turns."""
