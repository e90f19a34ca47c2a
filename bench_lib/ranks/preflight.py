"""What keeps ranks from a collective, in one sentence, found before the first one."""

from collections import Counter
from collections.abc import Sequence

from bench_lib.ranks.member import SHM, Facts

# NCCL takes some MiB of shared memory a pair of ranks; a container's default of 64 MiB is too little.
LEAST_SHM_NBYTES = 1 << 30


def obstacle(facts: Sequence[Facts]) -> str:
    """Why NCCL cannot, or must not, run over these ranks; "" when nothing speaks against it.

    Looked at in this order: fewer GPUs than ranks, MIG, one GPU twice, compute mode, shared memory.
    """
    found = (check(facts) for check in (_too_few, _mig, _twice, _exclusive, _shared_memory))
    return next((sentence for sentence in found if sentence), "")


def _too_few(facts: Sequence[Facts]) -> str:
    of_host = Counter(fact.host for fact in facts)
    for fact in facts:
        if fact.error:
            return f"rank {fact.rank} on {fact.host} sees no GPU: {fact.error}"
        if not fact.uuid:
            return (
                f"{of_host[fact.host]} ranks on {fact.host}, which sees {fact.gpus} GPUs, and each needs "
                "one of its own; ask for fewer with --ranks, or make more visible in CUDA_VISIBLE_DEVICES"
            )
    return ""


def _mig(facts: Sequence[Facts]) -> str:
    slices = [fact for fact in facts if fact.uuid.startswith("MIG-")]
    if not slices or len(facts) == 1:
        return ""
    return (
        f"rank {slices[0].rank} on {slices[0].host} has a MIG slice ({slices[0].name}), and NCCL does not "
        "connect slices; use whole GPUs, or --ranks 1"
    )


def _twice(facts: Sequence[Facts]) -> str:
    seen: dict[tuple[str, str], Facts] = {}
    for fact in facts:
        other = seen.setdefault((fact.boot_id, fact.uuid), fact)
        if other is not fact:
            return (
                f"ranks {other.rank} and {fact.rank} on {fact.host} have the same GPU, {fact.uuid}; give "
                "each rank its own with CUDA_VISIBLE_DEVICES"
            )
    return ""


def _exclusive(facts: Sequence[Facts]) -> str:
    """In an exclusive mode a GPU takes one process: none but the rank's may be there."""
    for fact in facts:
        where = f"GPU {fact.uuid} of rank {fact.rank} on {fact.host} is in compute mode {fact.compute_mode}"
        if fact.compute_mode == "prohibited":
            return f"{where}; put it into mode default with `nvidia-smi --compute-mode=0`"
        if fact.compute_mode.startswith("exclusive") and fact.others:
            return (
                f"{where} and another process computes on it; end that process, or put the GPU into mode "
                "default with `nvidia-smi --compute-mode=0`"
            )
    return ""


def _shared_memory(facts: Sequence[Facts]) -> str:
    of_host = Counter(fact.boot_id for fact in facts)
    for fact in facts:
        if of_host[fact.boot_id] > 1 and fact.shm_nbytes < LEAST_SHM_NBYTES:
            return (
                f"{SHM} on {fact.host} has {fact.shm_nbytes >> 20} MiB free, NCCL over several ranks needs "
                f"{LEAST_SHM_NBYTES >> 20} MiB; start the container with --shm-size=2g or make room there"
            )
    return ""
