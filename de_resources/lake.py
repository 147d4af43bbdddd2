"""The lake as a resource: tables by asset key, for checks, sensors and tools that do not go through an IO manager."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster_delta import AzureConfig, GcsConfig, LocalConfig, S3Config
from pydantic import Field

from de_resources.contract import Contract
from de_resources.delta.table import Table
from de_resources.proxy.table import ProxiedTable
from de_resources.spark import SparkEngine
from de_resources.storage import InFolders


class Lake(InFolders, dg.ConfigurableResource):
    """Where the tables are and which engine reads them. Asking for a table touches neither."""

    root_uri: str = Field(description="Root of the tables: a folder.")
    storage_options: AzureConfig | S3Config | LocalConfig | GcsConfig = Field(
        default_factory=LocalConfig, discriminator="provider", description="Credentials of the storage."
    )
    spark: dg.ResourceDependency[SparkEngine]

    def table(self, key: dg.AssetKey, metadata: Mapping[str, Any] | None = None) -> Table:
        """The table of an asset (`<root>/<layer>/<dataset>`); the asset's definition metadata tells its contract.

        One with `versions: manifest` is read through its manifest.
        """
        metadata = metadata or {}
        layer, name = metadata.get("schema") or key.path[-2], metadata.get("root_name") or key.path[-1]
        options = self.storage_options.str_dict()
        kind = ProxiedTable if metadata.get("versions") == ProxiedTable.VERSIONS else Table
        return kind(
            name=f"{layer}.{name}",
            uri=f"{self.root_uri.rstrip('/')}/{layer}/{name}",
            contract=Contract.load(metadata["contract"]) if metadata.get("contract") else None,
            storage_options={k: v for k, v in options.items() if k != "provider"},
            enforced=bool(metadata.get("constraints")),
        )
