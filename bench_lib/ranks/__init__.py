"""The same measurement over N processes: ranks are started or joined, asked together, and reaped."""
