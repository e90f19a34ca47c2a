"""What the ranks of tests/test_ranks.py are made with: module-level, so that their processes find it."""

import os
import subprocess
import time

from bench_lib.errors import WrongResult


def make(member, factor=1):
    """Answers `sum`, `pid`, ...; the others are faults of rank 1 alone, unless they say `all`."""

    def total():
        tensor = member.torch.full((4,), float(factor * (member.rank + 1)))
        member.torch.distributed.all_reduce(tensor)
        return tensor.tolist()

    def answer(request):
        ours = member.rank == 1
        if request == "pid":
            return os.getpid()
        if request == "variable":
            return os.environ.get("NCCL_DEBUG")
        if request == "child":
            return subprocess.Popen(["sleep", "1000"]).pid
        if request == "die" and ours:
            print("the last words of rank 1", flush=True)
            os.kill(os.getpid(), 9)
        if request == "exit" and ours:
            os._exit(7)
        if request == "hang" and ours:
            time.sleep(1000)
        if request == "raise" and ours:
            raise ValueError("rank 1 does not like it")
        if request == "wrong" and ours:
            raise WrongResult("element 3 is 4, expected 3")
        if request == "all wrong":
            raise WrongResult("element 3 is 4, expected 3")
        return total() if member.torch else "no torch"

    return answer


def make_worker():
    """The handler of a worker: it says who it is, or hangs."""
    return lambda request: os.getpid() if request == "pid" else time.sleep(1000)
