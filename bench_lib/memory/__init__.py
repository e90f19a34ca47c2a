"""The work of the family `unified_memory`."""
