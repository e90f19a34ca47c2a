"""What is asked of the ranks: one collective of one size, how it is called, and what is done with it."""

from dataclasses import dataclass
from pathlib import Path

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
SHARED = ("all_gather", "reduce_scatter")  # whose size is that of all ranks' parts together
ITEM_NBYTES = {"fp32": 4, "bf16": 2}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Collective:
    """One collective. `nbytes` is the size of the whole operation as nccl-tests has it: the buffer that
    is reduced or sent, all that a rank gathers, all that is scattered.
    """

    op: str
    nbytes: int
    dtype: str
    ranks: int
    place: str = "in"  # in place, or out of place
    launch: str = "call"  # call after call, or one graph of them

    @property
    def elements(self) -> int:
        """Elements of the whole operation, a multiple of the ranks where it is shared among them."""
        whole = self.nbytes // ITEM_NBYTES[self.dtype]
        return max(1, whole // self.ranks) * self.ranks if self.op in SHARED else whole

    @property
    def count(self) -> int:
        """What a rank passes: all elements, or its share of them."""
        return self.elements // self.ranks if self.op in SHARED else self.elements

    @property
    def item_nbytes(self) -> int:
        """Bytes of an element."""
        return ITEM_NBYTES[self.dtype]

    @property
    def actual_nbytes(self) -> int:
        """The bytes of the elements: what rates are counted with."""
        return self.elements * self.item_nbytes


# What a handler of `torch_rank` and `native_rank` answers, beside ranks.timing's Prepare and Take.


@dataclass(frozen=True)
class Roll:
    """Asks for (rank, number of ranks), as the communicator says it."""


@dataclass(frozen=True)
class NewId:
    """Asks one rank for the unique id of a new communicator of a library."""

    library: str = ""


@dataclass(frozen=True)
class Connect:
    """Asks for a communicator of a library and its first collective: (seconds of init, of the first)."""

    unique_id: bytes
    library: str = ""
    largest_nbytes: int = 8


@dataclass(frozen=True)
class Versions:
    """Asks for facts: the versions of NCCL that torch was built with, that is loaded, and that pip has."""


@dataclass(frozen=True)
class SetUp:
    """Asks to place the numbers of a collective, to run it once, and to check the result exactly."""

    asked: Collective
    calls: int = 1
    library: str = ""


@dataclass(frozen=True)
class Turns:
    """Asks for one turn of several libraries in this order: seconds a call of each, by name."""

    order: tuple[str, ...]


@dataclass(frozen=True)
class Loaded:
    """A libnccl by its name in a run."""

    name: str
    path: Path


def sizes(smallest: int, largest: int) -> list[int]:
    """Every power of two from one size to another."""
    return [1 << power for power in range(smallest.bit_length() - 1, largest.bit_length())]


def calls(nbytes: int) -> int:
    """Calls in a sample, a constant of the case: of small messages they take about half a millisecond."""
    for limit, n in ((64 * KIB, 50), (MIB, 20), (16 * MIB, 10), (128 * MIB, 4)):
        if nbytes <= limit:
            return n
    return 2
