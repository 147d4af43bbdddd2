"""The lake's tables as the assets declare them, for jobs that work on tables and not on assets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import dagster as dg

from de_resources.delta.table import CommitInfo
from de_resources.errors import PermanentError

LAKE = "io_manager"
"""The IO manager that stores the lake's plain tables."""
PROXY = "proxy_io_manager"
"""The IO manager that stores the lake's versions. What others store belongs to other environments."""


class UnknownTable(PermanentError):
    """A name that is no table of the lake."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"`{name[:80]}` is no table of this lake. There are: {', '.join(known)}.")


class KeepsVersions(PermanentError):
    """A job on plain tables that was asked for a dataset of immutable versions."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"`{name}` keeps immutable versions: there is no table to change. Nothing was done. To take it back use the job "
            "`roll_back`; old versions are removed by the job `maintenance` when all tables are maintained."
        )


class KeepsNoVersions(PermanentError):
    """A job on versions that was asked for something else."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"`{name[:80]}` keeps no versions. Those that do: {', '.join(known) or 'none'}.")


@dataclass(frozen=True)
class LakeTables:
    """Assets by their key as people write it (`bronze/devices`): the lake's own, and Delta tables of others.

    `versioned` are those of the lake that are written as immutable versions, behind a manifest.
    """

    own: Mapping[str, dg.AssetSpec]
    foreign: tuple[str, ...]
    versioned: Mapping[str, dg.AssetSpec] = field(default_factory=dict)

    @classmethod
    def of(cls, assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> "LakeTables":
        """Found in the assets' definitions: kind `deltalake`, stored by the lake's IO manager or not."""
        own: dict[str, dg.AssetSpec] = {}
        foreign: list[str] = []
        versioned: dict[str, dg.AssetSpec] = {}
        for definition in assets:
            if isinstance(definition, dg.AssetSpec):
                continue
            for spec in definition.specs:
                if "deltalake" not in spec.kinds:
                    continue
                name = spec.key.to_user_string()
                # One that stores its data itself names no table of the lake, though its unused output has a default.
                kept_by = definition.get_io_manager_key_for_asset_key(spec.key)
                if kept_by == LAKE and "dagster/table_name" in spec.metadata:
                    own[name] = spec
                elif kept_by == PROXY:
                    versioned[name] = spec
                else:
                    foreign.append(name)
        return cls(dict(sorted(own.items())), tuple(sorted(foreign)), dict(sorted(versioned.items())))

    def named(self, name: str) -> dg.AssetSpec:
        """The asset of a plain table. Raises `KeepsVersions`, and `UnknownTable`, which lists the known ones."""
        if name in self.versioned:
            raise KeepsVersions(name)
        if name not in self.own:
            raise UnknownTable(name, list(self.own))
        return self.own[name]

    def with_versions(self, name: str) -> dg.AssetSpec:
        """The asset of a dataset with versions. Raises `KeepsNoVersions`, which lists those that have."""
        if name not in self.versioned:
            raise KeepsNoVersions(name, list(self.versioned))
        return self.versioned[name]


def stamp_for(run: dg.DagsterRun, table: str, writer: str) -> CommitInfo:
    """The stamp of a job's work on a whole table."""
    attempt = f"{run.run_id}/{writer}/{uuid4().hex}"
    return CommitInfo(table=table, writer=writer, slice="all", run=run.run_id, origin=run.run_id, attempt=attempt)
