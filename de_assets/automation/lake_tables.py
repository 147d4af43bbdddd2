"""The lake's tables as the assets declare them, for jobs that work on tables and not on assets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import dagster as dg

from de_resources.delta.table import Stamp
from de_resources.errors import PermanentError

LAKE = "io_manager"
"""The IO manager that stores the lake. What others store belongs to other environments."""


class UnknownTable(PermanentError):
    """A name that is no table of the lake."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"`{name[:80]}` is no table of this lake. There are: {', '.join(known)}.")


@dataclass(frozen=True)
class LakeTables:
    """Assets by their key as people write it (`bronze/devices`): the lake's own, and Delta tables of others."""

    own: Mapping[str, dg.AssetSpec]
    foreign: tuple[str, ...]

    @classmethod
    def of(cls, assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> "LakeTables":
        """Found in the assets' definitions: kind `deltalake`, stored by the lake's IO manager or not."""
        own: dict[str, dg.AssetSpec] = {}
        foreign: list[str] = []
        for definition in assets:
            if isinstance(definition, dg.AssetSpec):
                continue
            for spec in definition.specs:
                if "deltalake" not in spec.kinds:
                    continue
                name = spec.key.to_user_string()
                # One that stores its data itself names no table of the lake, though its unused output has a default.
                kept_here = definition.get_io_manager_key_for_asset_key(spec.key) == LAKE
                if kept_here and "dagster/table_name" in spec.metadata:
                    own[name] = spec
                else:
                    foreign.append(name)
        return cls(dict(sorted(own.items())), tuple(sorted(foreign)))

    def named(self, name: str) -> dg.AssetSpec:
        """The asset of a table. Raises `UnknownTable`, which lists the known ones."""
        if name not in self.own:
            raise UnknownTable(name, list(self.own))
        return self.own[name]


def stamp_for(run: dg.DagsterRun, table: str, writer: str) -> Stamp:
    """The stamp of a job's work on a whole table."""
    attempt = f"{run.run_id}/{writer}/{uuid4().hex}"
    return Stamp(table=table, writer=writer, slice="all", run=run.run_id, origin=run.run_id, attempt=attempt)
