"""How long a dataset can be taken back, and the removal of versions that nobody can go back to.

The promise is about states and not about versions: the live manifest, the newest `keep` ones, and those that were live
within `age` stay, with every version that any of them needs. Removed are the manifests beyond, the versions that only
they needed, and what killed runs left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from de_resources.errors import PermanentError
from de_resources.proxy.manifest import Manifest
from de_resources.proxy.seal import remove
from de_resources.proxy.store import VersionStore


@dataclass(frozen=True)
class RetentionPolicy:
    """States to keep, by count and by age: a state stays if either says so. `unfinished` is the time a run may take."""

    keep: int = 10
    age: timedelta = timedelta(days=30)
    unfinished: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        """Raises `PermanentError` for a promise that would remove the live state, or one of the future."""
        if self.keep < 1 or self.age < timedelta() or self.unfinished < timedelta():
            raise PermanentError(
                f"Keeping {self.keep} states for {self.age} is no promise: at least the live one stays, and durations are "
                "not negative. Nothing was removed. Ask for `keep` of 1 or more."
            )


@dataclass(frozen=True)
class RemovedVersions:
    """What retention took away: manifests by number, versions by id, and folders that no run completed."""

    manifests: tuple[int, ...]
    versions: tuple[str, ...]
    unfinished: tuple[str, ...]


def retained(manifests: Sequence[Manifest], promise: RetentionPolicy, now: datetime) -> list[Manifest]:
    """The manifests that stay, given all of them in order. The last one is live, and always among them."""
    newest = manifests[-promise.keep :]
    # A state was live until the next one came.
    young = [m for m, later in pairwise(manifests) if later.at > now - promise.age]
    numbers = {m.number for m in (*newest, *young)}
    return [m for m in manifests if m.number in numbers]


def retain(store: VersionStore, promise: RetentionPolicy, now: datetime) -> RemovedVersions:
    """Remove what the promise does not cover. For a caller that keeps writers and other switches away meanwhile.

    Killed at any point it leaves manifests whose versions are all there, and the rest to the next time.
    """
    manifests = store.manifests()
    kept = retained(manifests, promise, now)
    dropped = sorted({m.number for m in manifests} - {m.number for m in kept})
    for number in dropped:
        store.manifest_path(number).unlink(missing_ok=True)
    needed = {id_ for manifest in kept for id_ in manifest.versions}
    since = now - promise.unfinished
    shown = {id_ for manifest in manifests for id_ in (*manifest.versions, *manifest.brought)}
    removed = [
        # A version that no manifest shows yet may wait for its switch.
        v.id
        for v in store.complete_versions()
        if v.id not in needed and (v.id in shown or v.completed <= since)
    ]
    for id_ in removed:
        # First no longer complete, then gone.
        store.version_path(id_).unlink(missing_ok=True)
        _remove(store, id_)
    unfinished = _unfinished(store, since)
    for id_ in unfinished:
        _remove(store, id_)
    _remove_drafts(store, since)
    return RemovedVersions(tuple(dropped), tuple(removed), tuple(unfinished))


def _unfinished(store: VersionStore, since: datetime) -> list[str]:
    folders = [path for path in store.versions_folder.glob("[!.]*") if path.is_dir()]
    return sorted(p.name for p in folders if store.complete(p.name) is None and _touched(p.stat().st_mtime) <= since)


def _touched(mtime: float) -> datetime:
    return datetime.fromtimestamp(mtime, UTC)


def _remove(store: VersionStore, id_: str) -> None:
    remove(store.versions_folder / id_)
    (store.versions_folder / f".{id_}.creation.lock").unlink(missing_ok=True)


def _remove_drafts(store: VersionStore, since: datetime) -> None:
    for folder in (store.versions_folder, store.manifests_folder):
        for draft in folder.glob(".*.json.*"):
            if _touched(draft.stat().st_mtime) <= since:
                draft.unlink(missing_ok=True)
