"""Versions and manifests in a folder. Documents are created, whole and under their final name, or not at all.

    <dataset>/versions/<id>/           the table of a version
    <dataset>/versions/<id>.json       what it holds; there once the version is complete and read-only
    <dataset>/manifests/<number>.json  which versions are live; the greatest number is the access point

A manifest is created under the next number by a hard link, which fails where somebody was faster: two switches never
overwrite each other, and a reader finds the manifest before or the one after.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from de_resources.errors import PermanentError
from de_resources.proxy.manifest import Manifest, ProxyVersion

READ_ONLY = 0o444


class NoSuchManifest(PermanentError):
    """A manifest that never was, or that retention has removed."""

    def __init__(self, table: str, number: int, known: list[int]) -> None:
        self.table, self.number, self.known = table, number, tuple(known)
        there = f"{known[0]} to {known[-1]}" if known else "none, since nothing was published yet"
        super().__init__(f"`{table}` has no manifest {number}. Readers see what they saw before. There are: {there}.")


class VersionMissing(PermanentError):
    """A version that is not complete, or that was removed."""

    def __init__(self, table: str, version: str) -> None:
        self.table, self.version = table, version
        super().__init__(
            f"`{table}` has no complete version `{version[:80]}`. Readers see what they saw before. Materialise the "
            "partitions again: that writes a new version and switches to it."
        )


@dataclass(frozen=True)
class VersionStore:
    """The documents of one dataset. `name` is for errors."""

    folder: Path
    name: str

    @property
    def versions_folder(self) -> Path:
        """Where the versions lie."""
        return self.folder / "versions"

    @property
    def manifests_folder(self) -> Path:
        """Where the manifests lie."""
        return self.folder / "manifests"

    def numbers(self) -> list[int]:
        """The numbers of all manifests, in order."""
        return sorted(int(path.stem) for path in self.manifests_folder.glob("[0-9]*.json"))

    def manifest(self, number: int) -> Manifest:
        """One manifest. Raises `NoSuchManifest`."""
        try:
            return Manifest.from_json(self.manifest_path(number).read_text())
        except FileNotFoundError:
            raise NoSuchManifest(self.name, number, self.numbers()) from None

    def manifests(self) -> list[Manifest]:
        """All manifests, in order."""
        return [self.manifest(number) for number in self.numbers()]

    def live(self) -> Manifest | None:
        """What readers see; None before the first switch."""
        while numbers := self.numbers():
            try:
                return self.manifest(numbers[-1])
            except NoSuchManifest:
                # Between the look and the reading there came a newer one, and retention removed this one.
                continue
        return None

    def version(self, id_: str) -> ProxyVersion:
        """A complete version. Raises `VersionMissing`."""
        found = self.complete(id_)
        if found is None:
            raise VersionMissing(self.name, id_)
        return found

    def complete(self, id_: str) -> ProxyVersion | None:
        """The version, or None as long as it is not complete."""
        try:
            return ProxyVersion.from_json(self.version_path(id_).read_text())
        except FileNotFoundError:
            return None

    def complete_versions(self) -> list[ProxyVersion]:
        """All complete versions, live or not, oldest first."""
        found = [self.complete(path.stem) for path in self.versions_folder.glob("[!.]*.json")]
        return sorted((v for v in found if v is not None), key=lambda v: (v.completed, v.id))

    def add(self, version: ProxyVersion) -> None:
        """Say that a version is complete. Saying it again changes nothing."""
        create(self.version_path(version.id), version.to_json())

    def switch(
        self, changes: Mapping[str, str | None], *, why: str, now: datetime, brought: tuple[str, ...] = ()
    ) -> Manifest:
        """Create the next manifest: the live one with these partitions changed, where None takes a partition out.

        Switches that come at once all take effect, one after the other.
        """
        while True:
            before = self.live()
            live = {**(before.live if before else {}), **changes}
            after = Manifest(
                number=before.number + 1 if before else 1,
                live={key: version for key, version in sorted(live.items()) if version is not None},
                at=now,
                why=why,
                brought=brought,
            )
            if create(self.manifest_path(after.number), after.to_json()):
                return after

    def manifest_path(self, number: int) -> Path:
        """The document of a manifest."""
        return self.manifests_folder / f"{number:020}.json"

    def version_path(self, id_: str) -> Path:
        """The document of a version."""
        return self.versions_folder / f"{id_}.json"


def create(path: Path, text: str) -> bool:
    """Create a read-only file whole and for good, or return False where the name is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with draft.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(READ_ONLY)
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    _sync(path.parent)
    return True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
