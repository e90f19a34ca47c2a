"""The order of arms in a round and the seed of its case order, both from the campaign's seed."""

import random
from collections.abc import Sequence

from bench_lib.model import NULL_SUFFIX


def arms(stacks: Sequence[str], null: bool) -> dict[str, str]:
    """Arm -> stack of one round; with `null`, the baseline (the first stack) has a second arm."""
    repeated = {stacks[0] + NULL_SUFFIX: stacks[0]} if null else {}
    return {stack: stack for stack in stacks} | repeated


def order(names: Sequence[str], seed: int, index: int) -> list[str]:
    """The arms of round `index` (from 0) in the order they run.

    Rounds come in cycles of n = len(names). A cycle is a Williams design (Williams 1949,
    Australian Journal of Scientific Research A 2, 149-168) with its arms and rounds shuffled: each
    arm is in each place once, and comes right after each other arm equally often (for an odd n over
    two cycles, the second a mirror of the first), so that what a process leaves behind (heat,
    caches) falls on all arms alike.
    """
    n = len(names)
    cycle, row = divmod(index, n)
    design, mirrored = divmod(cycle, 2) if n % 2 else (cycle, 0)
    labels = random.Random(f"{seed}/arms/{design}").sample(list(names), n)
    shift = random.Random(f"{seed}/rounds/{cycle}").sample(range(n), n)[row]
    zigzag = [place // 2 if place % 2 == 0 else n - 1 - place // 2 for place in range(n)]
    line = [labels[(step + shift) % n] for step in zigzag]
    return line[::-1] if mirrored else line


def case_seed(seed: int, index: int) -> int:
    """The seed of the case order in round `index`: the same for all its arms, never 0."""
    return random.Random(f"{seed}/cases/{index}").randrange(1, 2**31)
