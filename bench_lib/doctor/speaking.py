"""The child's half of `children`: say what was learnt, and where one stands if it hangs or crashes."""

import faulthandler
import json
import resource
import sys

KEY = "doctor"


def begin() -> list[str]:
    """Prepare this process for the worst; the arguments it was given."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is told in words
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(sys.argv[1]))
    return sys.argv[2:]


def say(**facts: object) -> None:
    """One line; what is said twice counts as it was said last."""
    print(json.dumps({KEY: facts}), flush=True)  # noqa: T201


def stage(doing: str) -> None:
    """What this process does next."""
    say(stage=doing)
