"""Collectives as work: what is asked of the ranks, the pattern that is checked, torch's and NCCL's own."""
