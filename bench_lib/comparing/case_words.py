"""A case in words, for a sentence: what it is called exactly stands in the tables."""

from collections.abc import Sequence

from bench_lib.comparing.changes import CaseChange
from bench_lib.units import nbytes_text

_BARE = frozenset({"none", "on", "off", "yes", "no", ""})  # say nothing without the parameter's name


def case_text(row: CaseChange, among: Sequence[CaseChange] = ()) -> str:
    """A case in words: `resnet50 step (batch 128, channels_last, infer, bf16-autocast)`.

    What all cases `among` which it stands share is left out.
    """
    metric = "" if row.metric == "time" else f" {row.metric}"
    what = row.op if row.op in row.family.split("_") else f"{row.family} {row.op}"
    told = [_parameter(name, value) for name, value in row.params.items() if name not in _shared(among)]
    return f"{what}{metric}" + (f" ({', '.join(told)})" if told else "")


def _shared(among: Sequence[CaseChange]) -> set[str]:
    """The parameters that say nothing: the metric, which is told apart, and what is equal in all cases."""
    own = [set(row.params.items()) for row in among]
    equal = {name for name, _ in set.intersection(*own)} if len(own) > 1 else set()
    return {"metric", *equal}


def _parameter(name: str, value: object) -> str:
    """A text says what it is by itself; a number, a switch and a word like `none` need the name."""
    if name == "nbytes" and isinstance(value, int | float):
        return nbytes_text(value)
    if isinstance(value, str) and value not in _BARE:
        return value
    return f"{name} {str(value).lower() if isinstance(value, bool) else value}"
