"""Two environments that must never mix: what is written to one of them lies nowhere inside the other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from de_resources.errors import PermanentError


class EnvironmentsOverlap(PermanentError):
    """The place of a replica lies inside the environment that it is a replica of, or around it."""

    def __init__(self, production: str, replica: str) -> None:
        self.production, self.replica = production, replica
        super().__init__(
            f"The replica's place `{replica}` and the source's place `{production}` lie inside each other. Nothing was "
            "written. Give the replica's environment a root of its own (`DE_STAGING_ROOT`)."
        )


class ReplicatorNeedsFolder(PermanentError):
    """A replicator of files was given a URL of an object store."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(
            f"`{uri}` is no folder. Files and logs are replicated between folders; between buckets use the store's own "
            "replication, or mount them."
        )


def require_apart(production: Iterable[str], replica: str) -> None:
    """Raise `EnvironmentsOverlap` unless `replica` is neither inside nor around any of the `production` places."""
    own = _parts(replica)
    for place in production:
        other = _parts(place)
        shared = min(len(own), len(other))
        if own[:shared] == other[:shared]:
            raise EnvironmentsOverlap(place, replica)


def local_folder(uri: str) -> Path:
    """The folder that a `file:` URL or a path names. Raises `ReplicatorNeedsFolder` for any other scheme."""
    if "://" in uri and not uri.startswith("file://"):
        raise ReplicatorNeedsFolder(uri)
    return Path(uri.removeprefix("file://").removeprefix("file:"))


def _parts(uri: str) -> tuple[str, ...]:
    if "://" in uri and not uri.startswith("file://"):
        address = urlsplit(uri)
        return (address.scheme, address.netloc, *PurePosixPath(address.path).parts[1:])
    return ("file", *local_folder(uri).resolve().parts)
