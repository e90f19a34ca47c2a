"""pytest items -> cases, and which of them are measured in which order.

A case is an item that uses this suite's `bench` fixture. Its file names the family and the margin,
its function the op, its parameters the rest.
"""

import difflib
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench_lib.errors import UsageError, nearest
from bench_lib.model import Case, Scalar, is_scalar
from bench_lib.stacking.families import bare

# Fixtures that `bench` and `gpu` of this suite ask for. A user's own fixture of the name `bench` or
# `gpu` does not, and so its tests stay theirs.
CASE_FIXTURE = "cuda_gains_case"
GPU_FIXTURE = "cuda_gains_gpu"

MARKERS = (
    "core(**params): a case of --quick: always, or where the named parameters have these values",
    "full(**params): a case that is measured with --full only, alike",
    "soak: a case that is measured with --soak MINUTES only, and takes so long",
    "margin(value, **params): the case's smallest change that matters, instead of its file's MARGIN",
    "needs_gpu(**params): a case that is skipped without a GPU, alike; the fixture gpu says it too",
    "opt_in: a case that is measured only where --family names its family, because it starts a service, say",
    "budget(seconds): wall time the case may take, 120 s unless said; then it ends as `timeout`",
)
_MARKS = [line.partition(":")[0].partition("(")[0] for line in MARKERS]
BUDGET_SECONDS = 120.0
MARGIN = 0.05  # of a file that names none
_LARGEST_MARGIN = 0.5
_A_SHARE = f"a share above 0 and at most {_LARGEST_MARGIN}"


def is_case(item: pytest.Item) -> bool:
    """Whether the item is one of ours."""
    return CASE_FIXTURE in getattr(item, "fixturenames", ())


def needs_gpu(item: pytest.Item) -> bool:
    """Whether the item asks for the GPU by name, or is marked as a GPU's."""
    return GPU_FIXTURE in getattr(item, "fixturenames", ()) or _marked(item, "needs_gpu")


def needing_gpu(items: Sequence[pytest.Item]) -> str:
    """The families of items that need the GPU, and how many of their cases do."""
    need = Counter(family(item) for item in items if needs_gpu(item))
    of = Counter(map(family, items))
    return ", ".join(f"{name} ({n} of {of[name]} cases)" for name, n in need.items())


def family(item: pytest.Item) -> str:
    """FAMILY of the item's file, else the file's name without `bench_`."""
    module = _module(item)
    return str(getattr(module, "FAMILY", bare(module.__name__.rpartition(".")[2])))


def files(items: Iterable[pytest.Item]) -> dict[str, set[Path]]:
    """The files of each family."""
    found: dict[str, set[Path]] = {}
    for item in filter(is_case, items):
        found.setdefault(family(item), set()).add(item.path)
    return found


def margin(item: pytest.Item) -> float:
    """The smallest change that matters, as a part of one: of the item's marker, else of its file."""
    held: list[float] = []
    for marker in item.iter_markers("margin"):  # all: each is checked
        if len(marker.args) != 1 or not _share(marker.args[0]):
            raise UsageError(f"{item.nodeid}: margin{marker.args} is not {_A_SHARE}; write margin(0.1)")
        if _holds(item, marker):
            held.append(float(marker.args[0]))
    of_file = getattr(_module(item), "MARGIN", MARGIN)
    if not _share(of_file):
        raise UsageError(
            f"{item.nodeid}: MARGIN = {of_file!r} of its file is not {_A_SHARE}; write 0.05 for 5 %"
        )
    return held[0] if held else float(of_file)


def budget_seconds(item: pytest.Item) -> float:
    """The wall time that the case may take."""
    marker = item.get_closest_marker("budget")
    if marker is None:
        return BUDGET_SECONDS
    given = [*marker.args, *marker.kwargs.values()]
    if len(given) != 1 or set(marker.kwargs) > {"seconds"} or not _positive(given[0]):
        raise UsageError(f"{item.nodeid}: budget{tuple(given)} is not a number of seconds; write budget(60)")
    return float(given[0])


def is_soak(item: pytest.Item) -> bool:
    """Whether the item is measured with --soak only."""
    return item.get_closest_marker("soak") is not None


def case_of(item: pytest.Item) -> Case:
    """The case an item stands for; UsageError for a parameter that is no JSON scalar."""
    params = params_of(item)
    for name, value in params.items():
        if not is_scalar(value):
            raise UsageError(
                f"{item.nodeid}: parameter {name!r} is {value!r} ({type(value).__name__}); parameters of a "
                "case are text, numbers or booleans: give a name, and look the object up inside"
            )
    return Case(family(item), bare(getattr(item, "originalname", item.name)), params)


def params_of(item: pytest.Item) -> dict[str, Scalar]:
    """The parameters of an item by name, without an underscore at its end.

    The underscore keeps a parameter apart from a fixture of its name: `benchmark_` is `benchmark`.
    """
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else {n.removesuffix("_"): v for n, v in callspec.params.items()}


def select(
    items: Sequence[pytest.Item], families: Sequence[str], quick: bool, full: bool, soak: bool = False
) -> list[pytest.Item]:
    """The items that stay: all that are not ours, and of ours what the options ask for.

    Raises UsageError for a family that no file has, for a marker that names an unknown parameter, and
    for --soak where no case is one.
    """
    known = {family(item) for item in items if is_case(item)}
    for name in families:
        if known and name not in known:
            raise UsageError(f"there is no family {name!r}; {nearest(name, known)}")
    soaks = {family(item) for item in items if is_case(item) and is_soak(item)}
    if soak and not soaks & set(families or known):
        raise UsageError("--soak was given and no selected family has one; select one, as --family allocator")
    return [item for item in items if not is_case(item) or _asked_for(item, families, quick, full, soak)]


def _asked_for(item: pytest.Item, families: Sequence[str], quick: bool, full: bool, soak: bool) -> bool:
    core, only_full = _marked(item, "core"), _marked(item, "full")
    if not _chosen(item, families):
        return False
    if is_soak(item):
        return soak
    return core if quick else (full or not only_full)


def _chosen(item: pytest.Item, families: Sequence[str]) -> bool:
    """Whether the item's family is named, or none is and it needs no naming."""
    return family(item) in families or not (families or _marked(item, "opt_in"))


def _marked(item: pytest.Item, name: str) -> bool:
    """Whether a marker of that name holds for the item's parameters."""
    held = [_holds(item, marker) for marker in item.iter_markers(name)]  # all: each is checked
    return any(held)


def _holds(item: pytest.Item, marker: pytest.Mark) -> bool:
    """Whether all parameters that the marker names have one of its values."""
    params = params_of(item)
    if unknown := sorted(marker.kwargs.keys() - params.keys()):
        raise UsageError(f"{item.nodeid}: {marker.name} names {unknown[0]!r}; {nearest(unknown[0], params)}")
    return all(params[key] in _listed(value) for key, value in marker.kwargs.items())


def mistyped_mark(name: str) -> str:
    """That a mark which nobody registered is near one of ours, in words; "" where it is not."""
    close = difflib.get_close_matches(name, _MARKS, n=1)
    return f"there is no mark {name!r}; did you mean {close[0]!r}?" if close and close[0] != name else ""


def check_marks(items: Iterable[pytest.Item], registered: Iterable[str]) -> None:
    """Raise UsageError for a mark that is ours but for its spelling."""
    own = {line.partition(":")[0].partition("(")[0].strip() for line in registered}
    for item in items:
        for name in {marker.name for marker in item.iter_markers()} - own:
            if said := mistyped_mark(name):
                raise UsageError(f"{item.nodeid}: {said} If it is yours, register it under `markers`")


def shuffled(items: Sequence[pytest.Item], seed: int) -> list[pytest.Item]:
    """The items in an order drawn by `seed`; 0 leaves them as they are.

    Files are shuffled, and items inside each: the items of one file share its fixtures.
    """
    if seed == 0:
        return list(items)
    rng = random.Random(seed)
    files: dict[Any, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = list(files)
    rng.shuffle(order)
    for path in order:
        rng.shuffle(files[path])
    return [item for path in order for item in files[path]]


def check(items: Iterable[pytest.Item]) -> None:
    """Raise UsageError for an item that cannot be a case, and for two that are the same one."""
    seen: dict[str, str] = {}
    for item in items:
        budget_seconds(item)
        margin(item)
        case_id = case_of(item).case_id
        if (other := seen.setdefault(case_id, item.nodeid)) != item.nodeid:
            raise UsageError(
                f"{item.nodeid} and {other} are both the case {case_id}; rename one of them, "
                "or give its file another FAMILY"
            )


def _module(item: pytest.Item) -> Any:
    return getattr(item, "module")  # noqa: B009 - an Item of pytest need not have one, ours do


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple | set | frozenset) else [value]  # type: ignore[return-value]


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _share(value: Any) -> bool:
    return _positive(value) and value <= _LARGEST_MARGIN


def without_margin(items: Iterable[pytest.Item]) -> list[str]:
    """The families with a file that names no MARGIN, so that the default decides what matters in them."""
    return sorted({family(item) for item in items if not hasattr(_module(item), "MARGIN")})


def not_named(items: Sequence[pytest.Item], families: Sequence[str]) -> str:
    """Which families are left out because nobody named them, as a sentence; "" where there are none."""
    found = {family(item) for item in items if is_case(item) and _marked(item, "opt_in")} - set(families)
    named = " ".join(f"--family {name}" for name in sorted(found))
    return f"{', '.join(sorted(found))} runs only where it is named: {named}" if found else ""


def not_core(items: Sequence[pytest.Item], families: Sequence[str]) -> str:
    """Which families --quick leaves nothing of, as a sentence; "" where each has a core case."""
    cases = [item for item in items if is_case(item) and _chosen(item, families)]
    left = {family(item) for item in cases if _marked(item, "core")}
    lost = Counter(family(item) for item in cases if family(item) not in left)
    said = ", ".join(f"{n} case{'s' if n > 1 else ''} of {name}" for name, n in lost.items())
    are = "is" if lost.total() == 1 else "are"
    return f"{said} {are} not core; leave out --quick, or mark some with pytest.mark.core" if said else ""
