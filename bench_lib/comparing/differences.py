"""What differs between the two sides of a comparison, and what a difference in time may be put down to."""

from collections.abc import Collection, Iterable, Mapping

import pandas as pd

from bench_lib.comparing.changes import Difference
from bench_lib.observing.settings import CODE

ABSENT = "absent"
SEVERAL = " / "  # between the values of a side whose runs differ among themselves

Values = dict[str, set[str]]  # key -> the values the runs of a side have for it

_CUDNN, _BUILT = "cudnn", "cudnn.cudart"  # the component, and the fact of a case that tells its build

_AXES = {"stack": "stack_identity", "driver": "driver_identity", "machine": "machine_identity"}


def differences(baseline: pd.DataFrame, candidate: pd.DataFrame) -> tuple[Difference, ...]:
    """What differs between the runs of two sides, by axis: stack, driver, machine, settings.

    In stack and driver a component (the first part of the key, `cudart`) is one difference; where a
    library lies does not matter, its version and hash do. Machine and settings differ key by key; of a
    benchmark file that one side did not measure, or of which it says nothing, nothing differs.
    """
    found: list[Difference] = []
    for axis, column in _AXES.items():
        whole = axis in ("stack", "driver")
        found += _axis(axis, _values(baseline[column]), _values(candidate[column]), whole)
    mine, yours = (_values(side["settings"]) for side in (baseline, candidate))
    alone = {key for key in mine.keys() ^ yours.keys() if key.startswith(CODE)}
    found += _axis("settings", _without(mine, alone), _without(yours, alone), False)
    return tuple(found)


def with_builds(
    found: tuple[Difference, ...], baseline: pd.DataFrame, candidate: pd.DataFrame
) -> tuple[Difference, ...]:
    """The differences, with another build of one cuDNN where cases alone tell it.

    libcudnn.so is the same file in all builds of a version, and older runs did not store which CUDA it was
    built for; their cases of cuDNN by path did.
    """
    if any(one.component == _CUDNN for one in found):
        return found
    mine, yours = (
        {(f["cudnn"], f[_BUILT]) for f in cases["facts"] if f and _BUILT in f}
        for cases in (baseline, candidate)
    )
    if not mine or not yours or mine == yours:
        return found
    texts = [SEVERAL.join(f"{v} (cuda {built})" for v, built in sorted(side)) for side in (mine, yours)]
    of_stack = [one for one in found if one.axis == "stack"]
    more = sorted([*of_stack, Difference("stack", _CUDNN, *texts)], key=lambda one: one.component)
    return (*more, *(one for one in found if one.axis != "stack"))


def unknown(baseline: pd.DataFrame, candidate: pd.DataFrame) -> tuple[str, ...]:
    """Of `stack` and `driver` those that a side says nothing about, as imported results may not.

    The CPU needs no driver: there nothing is missed.
    """
    on_gpu = "cuda" in set(baseline["device"]) | set(candidate["device"])
    asked = ("stack", "driver") if on_gpu else ("stack",)
    sides = (baseline, candidate)
    return tuple(axis for axis in asked if not all(_values(side[_AXES[axis]]) for side in sides))


def attribution(found: Iterable[Difference], unknown: Collection[str] = ()) -> str:
    """The one component that changed with both its versions, `confounded: ...`, or `nothing differs`.

    `unknown` names the axes of which nothing is known, so that nothing can be said to be the same there.

    The driver counts as a component here. A component that one side never loaded (its runs did not
    get that far, or measured other families) is named, but it is no other version of anything.
    Settings and machine are named as differing too, never as the cause.
    """
    listed = list(found)
    of_stack = [one for one in listed if one.axis in ("stack", "driver")]
    parts = [one for one in of_stack if ABSENT not in (one.baseline, one.candidate)]
    once = [one.component for one in of_stack if one not in parts]
    named = ", ".join(f"{one.component} {one.baseline} -> {one.candidate}" for one in parts)
    mixed = any(SEVERAL in one.baseline + one.candidate for one in parts)
    if not parts:
        text = _no_component(bool(listed), unknown)
    elif mixed:
        text = f"confounded: the runs of one side differ among themselves ({named})"
    else:
        text = named if len(parts) == 1 else f"confounded: {named}"
    others = [one.component for one in listed if one.axis not in ("stack", "driver")]
    if unknown and (parts or "stack" not in unknown):
        text += f"; nothing is known of the {' and the '.join(unknown)}"
    text += f"; loaded on one side only: {', '.join(once)}" if once else ""
    return text + (f"; also different: {', '.join(others)}" if others else "")


def _no_component(differs: bool, unknown: Collection[str]) -> str:
    """What is said where no component is known to differ; `differs`: settings or the machine do."""
    if "stack" in unknown:
        return "nothing is known of what differs" + ("" if "driver" in unknown else " in the stack")
    return "no component of the stack differs" if differs or unknown else "nothing differs"


def _values(column: Iterable[object]) -> Values:
    values: Values = {}
    for identity in column:
        for key, value in identity.items() if isinstance(identity, Mapping) else ():
            values.setdefault(str(key), set()).add(str(value))
    return values


def _without(values: Values, keys: Collection[str]) -> Values:
    return {key: found for key, found in values.items() if key not in keys}


def _axis(axis: str, a: Values, b: Values, whole: bool) -> list[Difference]:
    """The differences of one axis. A side that says nothing at all about it is not compared."""
    if not a or not b:
        return []
    names = sorted({_component(key) if whole else key for key in a.keys() | b.keys()})
    found = []
    for name in names:
        mine, yours = (_of(side, name) if whole else _key(side, name) for side in (a, b))
        if _differ(mine, yours):
            baseline, candidate = _shown(mine, yours), _shown(yours, mine)
            found.append(Difference(axis, name.removeprefix("env."), baseline, candidate))
    return found


def _component(key: str) -> str:
    return key.partition(".")[0]


def _of(side: Values, component: str) -> Values:
    """What a side says about one component, by the rest of the key; its path does not matter."""
    own = {key.partition(".")[2]: found for key, found in side.items() if _component(key) == component}
    return {key: found for key, found in own.items() if key != "path"}


def _key(side: Values, key: str) -> Values:
    return {"version": side[key]} if key in side else {}


def _differ(a: Values, b: Values) -> bool:
    """Whether a component differs: in what both sides know of it, or because one does not have it."""
    shared = a.keys() & b.keys()
    return any(a[key] != b[key] for key in shared) if shared else bool(a or b)


def _shown(own: Values, other: Values) -> str:
    """The value that tells a side from the other: its version, else the hash or what else differs."""
    if not own:
        return ABSENT
    version = SEVERAL.join(sorted(own.get("version", set())))
    told_apart = not other or own.get("version") != other.get("version")
    if version and told_apart:
        return version
    key = next(key for key in sorted(own) if told_apart or (key in other and own[key] != other[key]))
    told = SEVERAL.join(value[:12] for value in sorted(own[key]))
    return f"{version} ({key} {told})".strip()
