"""The pytest plugin: options, the `bench` fixture, the journal of a run."""
