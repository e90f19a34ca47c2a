"""The same work timed by this suite and by nvbench's Python package: whether two rulers agree."""
