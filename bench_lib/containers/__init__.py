"""Stacks of kind `container`: an image, and how docker or podman is asked to run a process in it."""
