"""`python -m bench_lib.containers.pins NAME`: the pins of a stack as pip's requirements, for a Dockerfile.

Needs nothing but Python, so that it can be asked before anything is installed.
"""

import sys

from bench_lib.stacking import stacks


def requirements(name: str) -> str:
    """A requirements file: the second index of a stack, if it has one, and its pins."""
    entry = stacks.stack(name)
    index = [f"--extra-index-url {entry.extra_index}"] if entry.extra_index else []
    return "\n".join([*index, *entry.requirements]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(requirements(sys.argv[1]))
