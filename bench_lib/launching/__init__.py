"""The work of the family `launch`."""
