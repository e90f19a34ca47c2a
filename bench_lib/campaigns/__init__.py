"""Campaigns: rounds of processes, planned, watched, merged."""
