"""The console that every command prints to, so that all of them are equally wide."""

import os

from rich.console import Console

WIDTH_OF_FILES = 180  # of what does not go to a terminal


def console(stderr: bool = False) -> Console:
    """As wide as the terminal, or as COLUMNS says; in a pipe or a file, where neither does, 180 columns."""
    made = Console(stderr=stderr)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = WIDTH_OF_FILES
    return made
