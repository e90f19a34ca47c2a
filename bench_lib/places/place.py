"""A place elsewhere through fsspec: list, get, put, remove; every failure is one sentence.

fsspec is imported when a place is opened. Each service's library has errors of its own, so whatever
one raises becomes Unreachable here, without what a URL in its text may hold.
"""

import contextlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bench_lib import extras
from bench_lib.errors import Unreachable, UsageError
from bench_lib.places.address import Address

# Their puts are whole or not there at all, and they have no folders. Elsewhere a file is put under
# another name and renamed.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})


class Place:
    """A place that was reached. Names of files are relative to it, with slashes."""

    def __init__(self, address: Address, filesystem: Any, root: str) -> None:
        self.address = address
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        protocol = filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_object_store = not protocols.isdisjoint(_OBJECT_STORES)

    @classmethod
    def open(cls, address: Address) -> Self:
        """The place of an address. Nothing is asked of it yet.

        Raises UsageError when what reaches it is not installed or no such kind of place exists.
        """
        scheme = address.url.partition("://")[0]
        try:
            from fsspec.core import url_to_fs

            filesystem, root = url_to_fs(address.url)
        except ImportError as error:
            raise UsageError(
                f"{address.option} needs a package that is not installed ({_why(error)}): "
                f"{extras.cure('remote', 'gcsfs' if scheme in ('gs', 'gcs') else '')}"
            ) from None
        except Exception as error:
            raise UsageError(f"{address.option} cannot be used ({_why(error)}); name another place") from None
        return cls(address, filesystem, root)

    def __str__(self) -> str:
        return str(self.address)

    def folders(self) -> list[str]:
        """The names of the folders in it; none in a place that is not there yet.

        Raises Unreachable when it cannot be asked, or when its bucket does not exist.
        """
        with self._asking("be read"):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.ls(self._root, detail=True)
            except FileNotFoundError:
                self._require_bucket()
                return []
        return sorted(
            one["name"].rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory"
        )

    def files(self, folder: str) -> dict[str, int]:
        """Name -> bytes of every file in and below a folder; none when there is no such folder."""
        with self._asking("be read"):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.find(self._path(folder), detail=True)
            except FileNotFoundError:
                self._require_bucket()
                return {}
        start = self._path("")
        return {path[path.index(start) + len(start) :]: info["size"] for path, info in found.items()}

    def get(self, names: Sequence[str], into: Path) -> None:
        """Fetch files into a folder, under their names. Raises FileNotFoundError when one is gone."""
        for name in names:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
        with self._asking("be read", gone_is=FileNotFoundError):
            self._filesystem.get(list(map(self._path, names)), [str(into / name) for name in names])

    def put(self, files: Mapping[str, Path]) -> None:
        """Put files under new names; each is whole or not there at all."""
        sources = [str(path) for path in files.values()]
        targets = [self._path(name) for name in files]
        with self._asking("be written"):
            if self._is_object_store:
                self._filesystem.put(sources, targets)
                return
            for source, target in zip(sources, targets, strict=True):
                self._filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._filesystem.put_file(source, temporary := _temporary(target))
                self._filesystem.mv(temporary, target)

    def create(self, name: str, content: bytes) -> bool:
        """Put a file unless one of that name is there; whether it was put. Of many at once one succeeds."""
        with self._asking("be written"):
            if not self._is_object_store:
                self._filesystem.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            try:
                self._filesystem.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
        return True

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; one that is gone already is no error."""
        with self._asking("be written"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._filesystem.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _require_bucket(self) -> None:
        """What is not there yet may be made by the first put; a bucket is never made here."""
        bucket = self._root.lstrip("/").partition("/")[0]
        if self._is_object_store and not self._root.startswith("/") and not self._filesystem.exists(bucket):
            raise Unreachable(
                f"there is no {bucket!r} for {self.address.option}; make it, or name another place"
            )

    @contextlib.contextmanager
    def _asking(self, what: str, gone_is: type[Exception] | None = None) -> Iterator[None]:
        try:
            yield
        except Unreachable:
            raise
        except Exception as error:
            if gone_is is not None and isinstance(error, gone_is):
                raise
            raise Unreachable(
                f"{self} cannot {what} ({_why(error)}); check the address, the network and the credentials"
            ) from None


def _temporary(target: str) -> str:
    folder, _, name = target.rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"


def _why(error: Exception) -> str:
    """The reason in one line. URLs in it lose their login and their query: a signature may be there."""
    text = " ".join(str(error).split())
    text = re.sub(r"://[^/\s\"']*@", "://", text)
    text = re.sub(r"\?[^\s\"']*", "", text)
    return f"{type(error).__name__}: {text[:200]}".removesuffix(": ")
