"""Where the files of a campaign lie: results/<campaign>/{samples,cases,runs,journal}/."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench_lib.errors import Refused, UsageError

TABLES = ("samples", "cases", "runs")
LOCAL = "local"  # the campaign of runs for which none is named
MERGED = "merged"  # the run id in the file name of a merged campaign: one file a table

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(kind: str, name: str) -> str:
    """Return `name` if it can be a file name on every system, else raise UsageError.

    Campaign names become folder names, so nothing in them may leave the results folder.
    """
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise UsageError(
            f"{kind} name {name!r} has characters that a folder name should not have; "
            "use letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return name


@dataclass(frozen=True)
class CampaignFolder:
    """The folder of one campaign under a results folder."""

    results: Path
    name: str

    def __post_init__(self) -> None:
        check_name("campaign", self.name)

    @property
    def path(self) -> Path:
        """The campaign's own folder."""
        return self.results / self.name

    def table(self, table: str, run_id: str) -> Path:
        """The Parquet file of one table of one run (or of all of them, `MERGED`)."""
        return self.path / table / f"{run_id}.parquet"

    def journal(self, run_id: str) -> Path:
        """The journal of a run that has not been written to Parquet (yet)."""
        return self.path / "journal" / f"{run_id}.jsonl"

    def parquet_files(self, table: str) -> list[Path]:
        """Every Parquet file of a table, sorted by name; empty when there is none."""
        return sorted((self.path / table).glob("*.parquet"))

    def journals(self) -> list[Path]:
        """Journals of runs without Parquet files: running, or killed before their end."""
        done = {path.stem for path in self.parquet_files("runs")}
        return [p for p in sorted((self.path / "journal").glob("*.jsonl")) if p.stem not in done]

    def exists(self) -> bool:
        """Whether anything was ever measured into this campaign."""
        return bool(self.parquet_files("runs") or self.journals())

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other campaign processes out of this folder; Refused, naming it, when one is there.

        The kernel lets go when this process ends, however it ends. The file stays: removing it would race.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            with contextlib.suppress(OSError):  # some shared file systems have no locks
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                    raise Refused(
                        f"process {holder} is working on campaign {self.name!r} in {self.results}; wait "
                        "until it has ended"
                    ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)
