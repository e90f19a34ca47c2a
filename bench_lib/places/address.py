"""What --results says: a folder of this machine, or the URL of a place elsewhere. Opens nothing."""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench_lib.errors import UsageError
from bench_lib.stacking import cache

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s]*")
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs"})  # schemes whose host is a bucket: nobody logs in there

# A bucket of that name at another server is another place.
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "FSSPEC_S3_ENDPOINT_URL", "STORAGE_EMULATOR_HOST")


@dataclass(frozen=True)
class Address:
    """Where results belong. `folder` is where this machine writes and reads them."""

    folder: Path
    url: str = ""  # of a place elsewhere, without a secret; "" when the folder itself is meant

    def __str__(self) -> str:
        return self.url or str(self.folder)

    @property
    def option(self) -> str:
        """The option that names it, for commands that are shown."""
        return f"--results {self}"


def parse(text: str) -> Address:
    """The address that `text` is.

    Raises UsageError for a URL that is none, or that holds credentials: it would end up in journals,
    logs and shell histories. The text is not repeated then.
    """
    if "://" not in text:
        return Address(Path(text))
    _refuse_secrets(text)
    url = text.rstrip("/")
    parts = urlsplit(url)
    if not _URL.fullmatch(url) or not (parts.netloc or parts.path.strip("/")):
        raise UsageError(f"--results {text} is no address; expected a folder, or a URL as s3://bucket/prefix")
    return Address(_folder(url), url)


def _refuse_secrets(text: str) -> None:
    scheme, _, rest = text.partition("://")
    host = rest.split("/")[0]
    user, at, _ = rest.rpartition("@")
    login = bool(at) and (":" in user or (scheme.lower() in _BUCKETS and "@" in host))
    if login or "?" in rest or "#" in rest:
        shown = scheme if scheme.isalnum() else "URL"
        raise UsageError(
            f"--results {shown}://... holds credentials or a query; name the place alone, such as "
            "s3://bucket/prefix, and give credentials as the service's own tools take them (for S3 "
            "AWS_PROFILE, ~/.aws or the AWS_ variables)"
        )


def _folder(url: str) -> Path:
    """This machine's folder for a place: a readable name, and a hash that tells places apart."""
    server = "\n".join(os.environ.get(name, "") for name in _ENDPOINTS)
    readable = re.sub(r"[^A-Za-z0-9]+", "-", url).strip("-")[:60]
    digest = hashlib.sha256(f"{url}\n{server}".encode()).hexdigest()[:10]
    return cache.root() / "results" / f"{readable}-{digest}"
