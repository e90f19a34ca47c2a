"""A run under pytest: options, cases, session, the plugin."""
