"""The switch, as a step of its own: show a complete version, or go back to what an earlier manifest showed.

Neither computes nor copies anything, so that each can be tried again at any time. Repeating one changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from de_resources.delta.write.crash_points import crash_point
from de_resources.errors import PermanentError
from de_resources.proxy.manifest import Manifest
from de_resources.proxy.store import VersionStore


class NothingPublished(PermanentError):
    """A switch on a dataset of which no version was ever shown."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"Nothing of `{table}` was published yet, so there is nothing to go back to. Materialise it first."
        )


class UnknownPartition(PermanentError):
    """Partitions to go back with, that neither state has."""

    def __init__(self, table: str, number: int, partitions: Sequence[str]) -> None:
        self.table, self.number, self.partitions = table, number, tuple(partitions)
        super().__init__(
            f"Neither manifest {number} of `{table}` nor the live one has the partition(s) {', '.join(partitions[:5])}. "
            "Nothing was switched. Name partition keys as the asset does, or none to go back with all of them."
        )


def publish(store: VersionStore, id_: str, *, now: datetime) -> Manifest:
    """Make a complete version the live one of all its partitions; returns the manifest that readers see now.

    A version that was shown before is not shown again: a late retry must not undo what came after it; to take it back
    is what `roll_back` is for. Raises `VersionMissing`.
    """
    version = store.version(id_)
    live = store.live()
    if live is not None and (id_ in live.versions or any(id_ in m.brought for m in store.manifests())):
        return live
    crash_point("before_switch", store.name)
    return store.switch(dict.fromkeys(version.predicates, id_), why=f"run {version.run}", now=now, brought=(id_,))


def roll_back(
    store: VersionStore, number: int, *, partitions: Sequence[str] = (), now: datetime
) -> tuple[Manifest, dict[str, str | None]]:
    """Show again what manifest `number` showed: of all partitions, or of those that are named.

    A partition that was not there then is taken out. Returns the live manifest, and what changed: the version of each
    partition that has another one now, None for one taken out. Where readers see that state already nothing is switched.
    Raises `NothingPublished`, `NoSuchManifest`, `UnknownPartition`, `VersionMissing`.
    """
    live = store.live()
    if live is None:
        raise NothingPublished(store.name)
    target = store.manifest(number)
    chosen = set(partitions) or {*live.live, *target.live}
    unknown = sorted(chosen - {*live.live, *target.live})
    if unknown:
        raise UnknownPartition(store.name, number, unknown)
    changes = {key: target.live.get(key) for key in sorted(chosen) if target.live.get(key) != live.live.get(key)}
    for id_ in {id_ for id_ in changes.values() if id_ is not None}:
        store.version(id_)
    if not changes:
        return live, {}
    return store.switch(changes, why=f"rolled back to {number}", now=now), changes
