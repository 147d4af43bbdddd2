"""What the manager's configuration, an asset's definition and its run say about a write.

The settings are `dagster_delta`'s and our own. One that would not be followed is refused by name, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from dagster import MetadataValue
from dagster_delta import BaseDeltaLakeIOManager, WriteMode
from dagster_delta.io_manager.base import SchemaMode

from de_resources.errors import PermanentError

MIGRATIONS = "migrations"
"""Metadata of an asset: the import paths of its migrations, `package.module:NAME`."""
AT_RUN_TIME = ("mode", "schema_mode", "merge_predicate")
"""What a run may change, by `context.add_output_metadata`; as in dagster-delta, it wins over the definition."""

_DEFINED_ONLY = (
    "constraints",
    "audits",
    "contract",
    "pre_clustered",
    "merge_deleted",
    "merge_deleted_days",
    "merge_keys",
    "merge_order",
    "merge_vanished",
    MIGRATIONS,
    "partition_expr",
    "partitioned_by",
    "reader",
    "root_name",
    "stateful",
    "table_configuration",
    "writer",
)
_REFUSED = {
    "writer_properties": "the files are written by the engine. Use Delta's table properties (`table_config`)",
    "commit_properties": "a commit carries the stamp of its run, by which retries are told apart. Leave it out",
    "parquet_read_options": "the files are read by the engine. Leave it out",
    "merge_operations_config": "it pastes SQL clauses. Use a declarative merge type, `merge_order` and `merge_deleted`",
}

Choice = TypeVar("Choice", bound=Enum)


class UnsupportedSetting(PermanentError):
    """A setting of dagster-delta that the engine's IO manager cannot follow."""

    def __init__(self, where: str, setting: str) -> None:
        self.where, self.setting = where, setting
        super().__init__(f"{where} sets `{setting}`, which is not supported: {_REFUSED[setting]}.")


class NotAtRunTime(PermanentError):
    """A setting that a run gives its output, and that only the asset's definition can have."""

    def __init__(self, asset: str, setting: str) -> None:
        self.asset, self.setting = asset, setting
        super().__init__(
            f"The run of `{asset}` sets `{setting}` as output metadata, which is not followed. Nothing was written. "
            f"Set it in the asset's `metadata`; a run can change {', '.join(f'`{each}`' for each in AT_RUN_TIME)}."
        )


def require_supported(manager: BaseDeltaLakeIOManager) -> None:
    """Raise `UnsupportedSetting` for a field of the configuration that would be ignored."""
    for setting in _REFUSED:
        if getattr(manager, setting, None) is not None:
            raise UnsupportedSetting(f"`{type(manager).__name__}`", setting)


def settings_of(asset: str, defined: Mapping[str, Any], at_run_time: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata by which an output is written: the definition's, with what the run changes.

    Raises `UnsupportedSetting` and `NotAtRunTime`.
    """
    said = {key: value.value if isinstance(value, MetadataValue) else value for key, value in at_run_time.items()}
    for setting in _REFUSED:
        if defined.get(setting) is not None or said.get(setting) is not None:
            raise UnsupportedSetting(f"`{asset}`", setting)
    for setting in _DEFINED_ONLY:
        if setting in said and said[setting] != defined.get(setting):
            raise NotAtRunTime(asset, setting)
    changed = {key: said[key] for key in AT_RUN_TIME if said.get(key) is not None}
    # Key columns are named by `merge_keys` or by a predicate: the run's own say wins over either.
    kept = {key: value for key, value in defined.items() if key != "merge_keys" or "merge_predicate" not in changed}
    return kept | changed


def modes_of(manager: BaseDeltaLakeIOManager, metadata: Mapping[str, Any]) -> tuple[WriteMode, SchemaMode | None]:
    """How an output is written: by its own settings, else by its manager's. Raises `PermanentError` for other words."""
    schema_mode = metadata.get("schema_mode") or manager.schema_mode
    return (
        _choice(WriteMode, "mode", metadata.get("mode") or manager.mode),
        _choice(SchemaMode, "schema_mode", schema_mode) if schema_mode else None,
    )


def _choice(choices: type[Choice], what: str, value: str) -> Choice:
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(f"`{c.value}`" for c in choices)
        raise PermanentError(f"`{what}` is {value!r}; it can be {known}.") from None
