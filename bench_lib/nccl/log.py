"""What NCCL's log says of each collective: the algorithm, the protocol and the channels it chose.

Written with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=TUNING, on rank 0, one line a collective. The line was
reworded in 2.23; before that it had numbers and no channels.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}

_CHOICE = re.compile(
    r"(?P<nbytes>\d+) Bytes -> Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\})?"
)
_SYMMETRIC = re.compile(
    r"\[Symmetric\]: (?P<nbytes>\d+) Bytes -> Kernel (?P<kernel>\w+) nchannels (?P<channels>\d+)"
)

# nccl's device.h and plugin/nccl_tuner.h: NCCL_ALGO_*, NCCL_PROTO_*
_ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True)
class Choice:
    """What NCCL chose for one collective; `channels` is 0 where the log does not tell."""

    nbytes: int
    algorithm: str
    protocol: str
    channels: int = 0

    def facts(self) -> dict[str, str]:
        """As facts of a case."""
        known = {"nccl.algorithm": self.algorithm, "nccl.protocol": self.protocol}
        return known | ({"nccl.channels": str(self.channels)} if self.channels else {})


def choices(text: str) -> Iterator[Choice]:
    """The choices in a log, in its order."""
    for line in text.splitlines():
        if found := _CHOICE.search(line):
            channels = int(found["high"]) - int(found["low"]) + 1 if found["high"] else 0
            algorithm = _word(found["algorithm"], _ALGORITHMS)
            yield Choice(int(found["nbytes"]), algorithm, _word(found["protocol"], _PROTOCOLS), channels)
        elif found := _SYMMETRIC.search(line):
            yield Choice(int(found[1]), f"symmetric {found[2]}", "simple", int(found[3]))


def _word(text: str, known: tuple[str, ...]) -> str:
    """A name in lower case; a number as the name it stands for."""
    if text.isdecimal():
        return known[int(text)] if int(text) < len(known) else text
    return {name.replace("_", ""): name for name in known}.get(text.lower().replace("_", ""), text.lower())
