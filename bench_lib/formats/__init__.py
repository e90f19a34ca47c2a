"""A comparison in the forms that other programs read: OpenMetrics for Prometheus, JUnit for CI."""
