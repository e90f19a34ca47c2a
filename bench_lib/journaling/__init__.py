"""A run's journal, and its rows."""
