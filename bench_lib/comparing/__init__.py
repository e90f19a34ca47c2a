"""From stored samples to verdicts."""
