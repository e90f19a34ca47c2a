"""How a measuring process ended: by its return code, and by what it wrote of itself."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from bench_lib.journaling.journal_rows import Row
from bench_lib.layout import CampaignFolder

# Exit codes of pytest, and of ours: https://docs.pytest.org/en/stable/reference/exit-codes.html
ENDED = (0, 1)  # all cases ran; some failed
NOT_COLLECTED = 2  # where no case was begun: collecting failed, and fails again
REFUSED = 4
NOTHING_SELECTED = 5
_DIED = -1  # not pytest's: the process never came to its end


@dataclass(frozen=True)
class ProcessEnd:
    """A measuring process that has ended: its exit code and the rows of its cases."""

    run_id: str
    exit_code: int
    cases: tuple[Row, ...]
    log: Path


def read(folder: CampaignFolder, run_id: str, returncode: int, log: Path) -> ProcessEnd:
    """The end of a process whose journal is Parquet by now."""
    path, names = folder.table("cases", run_id), ["nodeid", "case_id", "status", "reason"]
    cases = tuple(pq.read_table(path, columns=names).to_pylist()) if path.exists() else ()
    return ProcessEnd(run_id, _exit_code(folder, run_id, returncode), cases, log)


def _exit_code(folder: CampaignFolder, run_id: str, returncode: int) -> int:
    """What the process said of itself: after its end, a CUDA library may still crash at exit.

    _DIED when it did not come to its end, whatever its return code, unless it refused to go on.
    """
    if returncode == REFUSED:
        return REFUSED
    path = folder.table("runs", run_id)
    if not path.exists():  # no case was begun
        return {0: NOTHING_SELECTED, 1: _DIED}.get(returncode, returncode)
    row = pq.read_table(path, columns=["complete", "exit_code"]).to_pylist()[0]
    return int(row["exit_code"]) if row["complete"] and row["exit_code"] is not None else _DIED
