"""Who reads a column: from the column lineage that materialisations record."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from de_resources.lineage.record import COLUMN_LINEAGE


def recorded_readers(
    instance: dg.DagsterInstance, candidates: Iterable[dg.AssetKey], of: dg.AssetKey, column: str
) -> list[str] | None:
    """The columns, as `layer/dataset.column`, that the newest materialisations of `candidates` were made from `column`.

    None where none of them has recorded any lineage, so that nobody can tell.
    """
    found, known = [], False
    for key in candidates:
        event = instance.get_latest_materialization_event(key)
        recorded = (
            event.asset_materialization.metadata.get(COLUMN_LINEAGE) if event and event.asset_materialization else None
        )
        if recorded is None or not isinstance(recorded.value, dg.TableColumnLineage):
            continue
        known = True
        wanted = dg.TableColumnDep(of, column)
        found += [
            f"{key.to_user_string()}.{own}" for own, deps in recorded.value.deps_by_column.items() if wanted in deps
        ]
    return found if known else None
