"""The same as a view of the lake: a definition and no data, resolved to the live version whenever somebody reads it.

For a *virtual* asset, `@dg.asset(is_virtual=True, io_manager_key="view_io_manager")`, which returns its definition. A switch
of the dataset below is a switch of the view, without a run of its own.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame

from de_resources.atomic_files import publish, staged
from de_resources.delta.table import TableMissing
from de_resources.delta.write.lock import local_folder
from de_resources.lineage.inputs import read_as
from de_resources.lineage.record import copied_columns
from de_resources.proxy.table import NoImmutableStore, ProxiedTable, newest_partition
from de_resources.spark import SparkEngine
from de_resources.sql.identifiers import identifier


@dataclass(frozen=True)
class NewestPartition:
    """The definition: these columns of the greatest live partition of a proxied dataset `<layer>/<dataset>`."""

    of: str
    columns: tuple[str, ...]


class CatalogueViewIOManager(dg.ConfigurableIOManager):
    """Stores definitions as `<root>/<layer>/<dataset>/view.json` and reads through them."""

    root_uri: str = Field(description="Root of the tables: a folder.")
    spark: dg.ResourceDependency[SparkEngine]

    def handle_output(self, context: dg.OutputContext, obj: NewestPartition) -> None:
        """Replace the definition, at once. No data is read or written. Raises `NoImmutableStore` for object stores."""
        path = self._path(context.asset_key)
        path.parent.mkdir(parents=True, exist_ok=True)
        staged(path).write_text(json.dumps(asdict(obj), indent=1) + "\n")
        publish(path)
        context.add_output_metadata(
            {
                "view/of": obj.of,
                "view/columns": ", ".join(obj.columns),
                **copied_columns(obj.columns, dg.AssetKey.from_user_string(obj.of)),
            }
        )

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """What the view shows now, lazily. Raises `TableMissing` where it, or what it is a view of, is not there yet."""
        name = ".".join(context.asset_key.path)
        path = self._path(context.asset_key)
        if not path.exists():
            raise TableMissing(name)
        facts = json.loads(path.read_text())
        below = ProxiedTable(facts["of"].replace("/", "."), f"{self.root_uri.rstrip('/')}/{facts['of']}")
        _, rows = newest_partition(below, self.spark.spark_session)
        return read_as(rows.select(*map(identifier, facts["columns"])), context.asset_key)

    def _path(self, key: dg.AssetKey) -> Path:
        uri = "/".join([self.root_uri.rstrip("/"), *key.path])
        folder = local_folder(uri)
        if folder is None:
            raise NoImmutableStore(".".join(key.path), uri)
        return folder / "view.json"
