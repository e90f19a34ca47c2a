"""Several libnccls in one group of ranks, timed in turns: what the machine does in a turn, it does to all."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench_lib.collectives.asked import Collective, Loaded, SetUp, Turns, calls
from bench_lib.collectives.sweep import SET_UP_SECONDS, TAKE_SECONDS, Group
from bench_lib.model import Series, Timing, Work
from bench_lib.timing.measure import checked, collector_off

WARM_SHARE = 10  # one turn in so many more is taken first and left out


def in_turns(
    group: Group, libraries: Sequence[Loaded], asked: Collective, turns: int, seed: int
) -> dict[str, Series]:
    """The series of each library by name, sample i of each from turn i, the slowest rank's.

    Each library's result is checked exactly first. Their order in a turn is drawn anew from `seed`.
    """
    ranks, n = group.connected(), calls(asked.nbytes)
    names = [one.name for one in libraries]
    rng, warm = np.random.default_rng(seed), -(-turns // WARM_SHARE)
    found: dict[str, list[float]] = {name: [] for name in names}
    with group.faults.counted(), collector_off():
        for name in names:
            ranks.ask(SetUp(asked, n, name), SET_UP_SECONDS)
        for _ in range(warm + turns):
            order = tuple(names[i] for i in rng.permutation(len(names)))
            answers = ranks.ask(Turns(order), TAKE_SECONDS)
            for name in names:
                found[name].append(max(answer[name] for answer in answers))
    common = Series(
        (),
        timing=Timing.NATIVE,
        calls=n,
        turns=f"nccl-{asked.launch}-{asked.nbytes}",
        work=Work(nbytes=asked.actual_nbytes),
        warmup_calls=warm * n,
    )
    return {
        name: replace(common, seconds=checked(tuple(times[warm:])), facts=group.start(name).facts)
        for name, times in found.items()
    }
