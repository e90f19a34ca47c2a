"""A campaign's files here and elsewhere: what is new there is fetched, what is new here is put.

Files with results never change and their names are unique (by run, round or merge), so many machines
can write into one place. An empty file under `.known/` says that a file was seen elsewhere: without
one it has not been put yet. One that was removed elsewhere (by a merge) is moved to `.gone/` here.
"""

import contextlib
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from bench_lib.errors import Unreachable
from bench_lib.layout import TABLES, CampaignFolder, check_name
from bench_lib.places.place import Place

_ROUNDS = "rounds"
_NAME = re.compile(rf"(({'|'.join(TABLES)})/[A-Za-z0-9][\w.-]*\.parquet|{_ROUNDS}/[A-Za-z0-9][\w.-]*\.json)")
_GROUPS = (TABLES[:-1], TABLES[-1:], (_ROUNDS,))  # a run's row after what it stands for, then its round
_ATTEMPTS = 3  # a merge elsewhere may remove what was just listed


class Mirror:
    """One campaign of a place, and its folder on this machine."""

    def __init__(self, place: Place, campaign: str) -> None:
        self.place = place
        self.campaign = check_name("campaign", campaign)
        self.folder = CampaignFolder(place.address.folder, campaign)
        self._known = place.address.folder / ".known" / campaign
        self._gone = place.address.folder / ".gone" / campaign

    def fetch(self) -> None:
        """Bring the folder up to what is elsewhere; what was not put yet stays. Raises Unreachable."""
        for attempt in range(_ATTEMPTS):
            known = _files(self._known)  # before the listing: what is put meanwhile is not gone
            there = {name: size for name, size in self._listing().items() if _NAME.fullmatch(name)}
            here = _files(self.folder.path)
            new = (n for n, size in there.items() if n not in here or (n in known and here[n] != size))
            missing = [name for name in new if _is_whole(name, there)]
            try:
                self._get(missing)
            except FileNotFoundError:
                if attempt < _ATTEMPTS - 1:
                    continue
                raise Unreachable(f"files vanish from {self.place} while they are read; try again") from None
            break
        here = _files(self.folder.path)
        self._mark(name for name, size in there.items() if here.get(name) == size)
        for name in known.keys() - there.keys():
            self._forget(name)

    def push(self) -> int:
        """Put what has not been put yet, a run's row last; how many files. Raises Unreachable."""
        pending = self.pending()
        for tables in _GROUPS:
            names = [name for name in pending if name.partition("/")[0] in tables]
            if names:
                self.place.put({self._elsewhere(name): self.folder.path / name for name in names})
                self._mark(names)
        return len(pending)

    def pending(self) -> list[str]:
        """The files that have not been put yet."""
        return sorted(_files(self.folder.path).keys() - _files(self._known).keys())

    def remove_elsewhere(self, names: Collection[str]) -> None:
        """Remove files that are not needed any more. Raises Unreachable."""
        self.place.remove([self._elsewhere(name) for name in sorted(names)])
        for name in names:
            (self._known / name).unlink(missing_ok=True)

    def names(self) -> set[str]:
        """The files with results in the folder."""
        return set(_files(self.folder.path))

    def fetch_plan(self, file: str) -> bool:
        """Fetch the campaign's plan over the one here; whether there is one. Raises Unreachable."""
        if file not in self._listing():
            return False
        self._get([file])
        return True

    def create_plan(self, file: str) -> bool:
        """Put the plan unless another machine was first; whether it was put. Raises Unreachable."""
        return self.place.create(self._elsewhere(file), (self.folder.path / file).read_bytes())

    def put_plan(self, file: str) -> None:
        """Put the plan over the one elsewhere: more rounds were asked for. Raises Unreachable."""
        self.place.put({self._elsewhere(file): self.folder.path / file})

    def remove_plan(self, file: str) -> None:
        """Remove the plan elsewhere: nothing was measured by it. Raises Unreachable."""
        self.place.remove([self._elsewhere(file)])

    def not_put(self, error: Unreachable) -> str:
        """The sentence for files that could not be put: why, where they are, and what puts them."""
        return (
            f"{_count(self.pending())} of campaign {self.campaign!r} not put: {error}; "
            f"kept in {self.folder.path}, put them with `cuda-gains push {self.place.address.option}`"
        )

    def _elsewhere(self, name: str) -> str:
        return f"{self.campaign}/{name}"

    def _listing(self) -> dict[str, int]:
        start = self._elsewhere("")
        return {name.removeprefix(start): size for name, size in self.place.files(self.campaign).items()}

    def _get(self, names: Sequence[str]) -> None:
        """Fetch beside the folder, then move: a file in it is whole."""
        if not names:
            return
        root = self.place.address.folder
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=root) as scratch:
            self.place.get([self._elsewhere(name) for name in names], Path(scratch))
            for name in names:
                target = self.folder.path / name
                target.parent.mkdir(parents=True, exist_ok=True)
                (Path(scratch) / self._elsewhere(name)).replace(target)

    def _mark(self, names: Iterable[str]) -> None:
        for name in names:
            mark = self._known / name
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()

    def _forget(self, name: str) -> None:
        here, gone = self.folder.path / name, self._gone / name
        if here.exists():
            gone.parent.mkdir(parents=True, exist_ok=True)
            here.replace(gone)
        (self._known / name).unlink(missing_ok=True)


def here(place: Place) -> list[str]:
    """The campaigns of a place that have a folder on this machine."""
    root = place.address.folder
    found = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    return [name for name in found if not name.startswith(".") and (root / name).is_dir()]


def fetch(place: Place, campaigns: Iterable[str]) -> None:
    """Fetch campaigns, those that are there; says what this machine has not put yet."""
    there = set(place.folders())
    for name in campaigns:
        one = Mirror(place, name)
        if name in there:
            one.fetch()
        if pending := one.pending():
            sys.stderr.write(
                f"cuda-gains: {_count(pending)} of campaign {name!r} are only on this machine; put them with "
                f"`cuda-gains push {place.address.option}`\n"
            )


def _files(folder: Path) -> dict[str, int]:
    """Name -> bytes of the files with results in a campaign's folder."""
    found = {}
    for table in (*TABLES, _ROUNDS):
        for path in (folder / table).glob("[!.]*"):
            name = f"{table}/{path.name}"
            if _NAME.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):  # another process merges, or fetches
                    found[name] = path.stat().st_size
    return found


def _is_whole(name: str, there: Collection[str]) -> bool:
    """Whether a file's run is all there: while it is put, its row is the last to come."""
    table, _, file = name.partition("/")
    return table not in TABLES or f"{TABLES[-1]}/{file}" in there


def _count(names: Collection[str]) -> str:
    return f"{len(names)} file{'s' if len(names) != 1 else ''}"
