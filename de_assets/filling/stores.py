"""Where the datasets of the graph are stored, and whether they still are: what somebody removed has to be computed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import AssetKey, Definitions

from de_resources.delta.log import TableLog
from de_resources.delta.write.lock import local_folder
from de_resources.local.endpoints import ServiceUnavailable
from de_resources.postgres import PostgresDatabase
from de_resources.proxy.store import VersionStore
from de_resources.settings import Settings

_DATABASE = "postgres"
"""The kind of an asset whose rows lie in the database."""


@dataclass(frozen=True)
class Stores:
    """Folders of this home, and the database for what is `in_database`."""

    settings: Settings
    in_database: frozenset[AssetKey]

    @classmethod
    def of(cls, settings: Settings, locations: Iterable[Definitions]) -> Stores:
        """As the assets' kinds say it."""
        specs = (spec for location in locations for spec in location.resolve_all_asset_specs())
        return cls(settings, frozenset(spec.key for spec in specs if _DATABASE in spec.kinds))

    def has(self, key: AssetKey) -> bool:
        """Whether the dataset is there: a table, versions of one, or files of days. A topic is not looked for.

        A database that does not answer tells nothing: then it is not there.
        """
        name = key.to_user_string()
        if key in self.in_database:
            try:
                return PostgresDatabase().has(".".join(key.path))
            except ServiceUnavailable:
                return False
        uri = self.settings.uri_of(name)
        if TableLog.open(uri) is not None or behind_a_manifest(uri, name) is not None:
            return True
        from de_resources.csv_files import DayFiles  # a command that is only imported loads no engine

        folder = local_folder(uri)
        return folder is not None and DayFiles(name, folder).any()


def behind_a_manifest(uri: str, name: str) -> tuple[Mapping[Any, int], int] | None:
    """Live rows per partition of a dataset that keeps versions, and the manifest's number; None for all others."""
    folder = local_folder(uri)
    store = VersionStore(folder, name) if folder is not None else None
    live = store.live() if store is not None else None
    if store is None or live is None:
        return None
    versions = {id_: store.version(id_) for id_ in live.versions}
    return {key: versions[id_].rows.get(key, 0) for key, id_ in live.live.items()}, live.number
