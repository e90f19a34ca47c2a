"""Every error a user can meet, each one clear sentence: found, expected, what to do.

CudaGainsError
├── UsageError      the command or a file is wrong               exit code 2 (pytest: 4)
│   ├── DataError   a results file cannot be read as data
│   └── Unreachable results elsewhere cannot be read or written
├── Refused         measuring here would give wrong results      exit code 4
├── Unavailable     this case cannot run here: `skipped`
├── NotApplicable   this case has no meaning in this stack
├── WrongResult     the checked result is outside its tolerance
├── CaseTimeout     a case passed its own budget
├── Crashed         a process that the case needed died: `crashed`
├── Hung            a process that the case needed did not answer: `hung`
└── CudaError       a CUDA call failed; carries the code and its name
"""

import difflib
from collections.abc import Iterable

from bench_lib.units import names_text

_NAMES_SHOWN = 12


class CudaGainsError(Exception):
    """The root of the tree; its text is what the user reads."""


class UsageError(CudaGainsError):
    """Wrong use: names what was found, what was expected and what to do."""


class DataError(UsageError):
    """A results file that is damaged, foreign or of an unknown schema; names the file."""


class Unreachable(UsageError):
    """A place of results elsewhere cannot be read or written now; what is on this machine is kept."""


class Refused(CudaGainsError):
    """Measuring is refused, because the numbers would be wrong."""


class Unavailable(CudaGainsError):
    """Something the case needs is not on this machine; the case is `skipped` with this text."""


class NotApplicable(CudaGainsError):
    """The case has no meaning in this stack; the case is `not-applicable` with this text."""


class WrongResult(CudaGainsError):
    """A result was checked and is outside its tolerance; the case gets no timing."""


# What a process that works for a case may raise and be used for the next one.
HARMLESS = (NotApplicable, Unavailable, WrongResult)


class CaseTimeout(CudaGainsError):
    """A case passed its own wall-time budget."""


class Crashed(CudaGainsError):
    """A process that the case needed died; the case is `crashed` with this text."""


class Hung(CudaGainsError):
    """A process that the case needed did not answer in time; the case is `hung` with this text."""


class CudaError(CudaGainsError):
    """A CUDA call returned an error.

    `code` is the number the API gave, `call` the function that gave it.
    """

    OUT_OF_MEMORY = 2

    def __init__(self, call: str, code: int, name: str = "") -> None:
        self.call = call
        self.code = code
        super().__init__(f"{call} failed with CUDA error {code}{f' ({name})' if name else ''}")

    @property
    def sticky(self) -> bool:
        """Whether the context is unusable after this error, so that the process must end."""
        return self.code in _STICKY


# Errors after which every later call in the process fails too (cuda.h: "leaves the process in an
# inconsistent state"): ECC, illegal address, launch timeout, assert, hardware stack, illegal
# instruction, misaligned address, invalid address space, invalid pc, launch failed, contained,
# unknown.
_STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 999})


def first_sentence(text: str) -> str:
    """The first line of an error of somebody else, and after a colon at its end what that announces.

    A compiler's first line only says that its backend raised something; "no message" for no text.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    end = next((n for n, line in enumerate(lines) if not line.endswith(":")), len(lines) - 1)
    return " ".join(lines[: end + 1])


def retold(error: Exception, text: str) -> Exception:
    """An error of the same kind, which decides a case's status, with another text."""
    kind = type(error) if isinstance(error, CudaGainsError | MemoryError) else CudaGainsError
    return kind(text)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out, on the host or on the device."""
    # torch and CuPy each have a class of that name, and neither needs to be imported here.
    out = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    out |= isinstance(error, CudaError) and error.code == CudaError.OUT_OF_MEMORY
    return out or isinstance(error, MemoryError)


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> UsageError:
    """The error for a name that is not among `known`: says what is there, the nearest first."""
    listed = list(known)
    near = difflib.get_close_matches(name, listed, n=1, cutoff=0.5)
    there = [*near, *(one for one in listed if one not in near)]
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UsageError(f"no {kind} {name!r}{where}; there: {names_text(there, _NAMES_SHOWN) or 'none'}{hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """For a name that is not among `known`: the one most alike as a question, and all where they are few."""
    listed = sorted(known)
    close = difflib.get_close_matches(name, listed, n=1)
    if close and len(listed) > _NAMES_SHOWN:
        return f"did you mean {close[0]!r}?"
    named = f"nown are {', '.join(listed) or 'none'}"
    return f"did you mean {close[0]!r}? K{named}" if close else f"k{named}"
