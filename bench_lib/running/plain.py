"""What a benchmark hands over, of whatever package, in; Python's own numbers and text out, or UsageError."""

import contextlib
import operator
import reprlib
from collections.abc import Mapping
from typing import Any

from bench_lib.errors import UsageError
from bench_lib.model import Scalar, Series, Timing, Work, is_scalar
from bench_lib.timing.measure import checked

_MOST = 2**31 - 1  # the tables keep whole numbers in 32 bits


def series_of(series: Series) -> Series:
    """A series in Python's own numbers and text; UsageError for what cannot be that."""
    try:
        seconds = checked(tuple(_number("a sample", value) for value in series.seconds))
        flags = tuple(map(text_of, series.flags))
        if flags and len(flags) != len(seconds):
            raise UsageError(f"{len(flags)} flags for {len(seconds)} samples; give one a sample, or none")
        warnings = [series.warnings] if isinstance(series.warnings, str) else series.warnings
        return Series(
            seconds=seconds,
            flags=flags,
            timing=Timing(series.timing),
            calls=whole("calls", series.calls),
            turns=text_of(series.turns),
            work=work_of(series.work.flop, series.work.nbytes),
            warmup_calls=whole("warmup_calls", series.warmup_calls, least=0),
            warnings=tuple(map(text_of, warnings)),
            quantities=quantities(series.quantities),
            facts={text_of(name): text_of(text) for name, text in series.facts.items()},
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{type(series).__name__} is no series as bench_lib.model says: {error}") from None


def quantities(given: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by name; UsageError for what is none, and for a name that a time has."""
    if "seconds" in given:
        raise UsageError("a quantity named 'seconds' would be taken for the time; give it another name")
    return {text_of(name): _number(f"quantity {name!r}", value) for name, value in given.items()}


def work_of(flop: Any, nbytes: Any) -> Work:
    """The work of one call; None is work that is not known."""
    given = {"flop": flop, "nbytes": nbytes}
    return Work(**{name: None if value is None else _number(name, value) for name, value in given.items()})


def _number(what: str, value: Any) -> float:
    """A number of any package as a float."""
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: of a tensor of several
        pass
    raise UsageError(f"{what} is {_shown(value)}; expected a number")


def whole(what: str, value: Any, least: int = 1) -> int:
    """A whole number of any package as an int that the tables can hold."""
    with contextlib.suppress(TypeError):
        if least <= (number := operator.index(value)) <= _MOST:
            return number
    raise UsageError(f"{what} is {value!r}; expected a whole number from {least} to {_MOST}")


def scalar(name: str, value: Any) -> Scalar:
    """The value of a parameter: a scalar of NumPy or of a tensor becomes Python's."""
    if not isinstance(value, str | int | float) and hasattr(value, "item"):
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            value = value.item()
    if not is_scalar(value):
        raise UsageError(
            f"parameter {name!r} is {_shown(value)}; expected text, a finite number or a boolean"
        )
    return text_of(value) if isinstance(value, str) else value


def check_functions(**given: object) -> None:
    """UsageError for what is no function: most often what one returned that was called too early."""
    for name, value in given.items():
        if not (value is None or callable(value)):
            raise UsageError(f"{name} is {_shown(value)}; expected a function, as in bench(lambda: a @ a)")


def _shown(value: object) -> str:
    """A value and its type on one line, whatever its size."""
    return f"{' '.join(reprlib.repr(value).split())} ({type(value).__name__})"


def text_of(value: object) -> str:
    """Text that every file can hold: half a surrogate pair becomes a question mark."""
    return str(value).encode("utf-8", "replace").decode()
