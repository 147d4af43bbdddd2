"""Where the columns of every asset come from, for tests that have made real runs.

The truth is the graph's declared inputs, and a list of the columns that come from nowhere, with why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_resources.contract import Contract
from de_resources.lineage.record import LINEAGE_INCOMPLETE, LINEAGE_NONE, LINEAGE_OPAQUE, UNDECLARED
from de_resources.lineage.recorded import lineage_of

Metadata = Mapping[str, dg.MetadataValue[Any]]

NO_COLUMNS = {"staging/devices_raw"}
"""Files that are copied byte by byte."""
A_PAGE = {"dashboards/daily_traffic"}
"""It has no columns; what it reads decides about it."""
IN_PYTHON = {
    "bronze/features",
    "bronze/features_dead_letter",
    "silver/visits_live_state",
    "silver/network_countries",
    "gold/sessions_stream",
}
"""Rows that Python code makes: opaque, with their inputs."""
MORE = {
    # What was open before is read again to be continued; nobody waits for it, so that it is not declared.
    "gold/sessions_live": {"gold/sessions_live"},
}
FROM_NOWHERE = {
    "bronze/visits": {"source_file", "landing_hour", "was_dead_lettered"},  # of the file; of a decision, here none
    "bronze/visits_dead_letter": {"job_version", "landing_hour", "status", "repair_of", "attempts", "why"},
    "silver/visits_live_dead_letter": {"job_version"},  # of the code
    "silver/devices": {"is_deleted"},  # of the merge
    "gold/users_snapshot": {"snapshot_date"},  # of the run
    "gold/users_by_country": {"source_version", "users"},  # of the table's log; rows that are counted
    "silver/visits_live_state": {"entry"},  # which kind of row it is
    "gold/visits_cube_daily": {"grouping", "visits"},  # rows that are counted
    "gold/visitor_sketches_daily": {"grouping"},
    "gold/referral_stats": {"visits", "late_visits"},
    # Of the instance: which hours are there; and rows that are counted.
    "gold/daily_report": {
        *("report_date", "visits", "figures_of", "basis", "completeness", "is_approximate"),
        *("hours_expected", "hours_there", "missing_hours"),
    },
    "gold/traffic_live": {"visits"},
    "gold/pages_per_visit": {"announcements"},
    "serving/page_counts": {"views"},
    "serving/partner_feed": {"views"},
    "serving/profile_changes": {"is_deleted"},  # whether a user is in one of two snapshots only
}
"""Columns that no column of an input is in."""
LESS = {
    # The dump is whole: the newest of the snapshots is what the view shows.
    "serving/users_snapshot": {"gold/users_snapshot"},
}
"""Declared to wait for, and read by another one."""


def problems(instance: dg.DagsterInstance, defs: dg.Definitions) -> dict[str, dict[str, Any]]:
    """What is wrong with the newest lineage of each asset that has run, by what kind of wrong; empty for one that is right."""
    graph = defs.resolve_asset_graph()
    found = {}
    for key in graph.materializable_asset_keys:
        event = instance.get_latest_materialization_event(key)
        if event is None or event.asset_materialization is None:
            continue
        name, told, node = key.to_user_string(), event.asset_materialization.metadata, graph.get(key)
        contract = node.metadata.get("contract")
        parents = {parent.to_user_string() for parent in node.parent_keys}
        wrong = {
            "columns": _columns(name, told, Contract.load(contract) if contract else None),
            "inputs": _inputs(name, told, parents),
            "not understood": _text(told, LINEAGE_INCOMPLETE),
            "undeclared": _text(told, UNDECLARED),
        }
        found[name] = {what: each for what, each in wrong.items() if each}
    return found


def _columns(name: str, metadata: Metadata, contract: Contract | None) -> object:
    lineage = lineage_of(metadata)
    if name in NO_COLUMNS:
        return [] if lineage is None and _text(metadata, LINEAGE_NONE) else "lineage of what has no columns"
    if lineage is None:
        return "no lineage"
    missing = set(contract.column_names if contract and name not in A_PAGE else ()) - set(lineage.columns)
    nowhere = {column for column, sources in lineage.columns.items() if not sources}
    opaque = bool(_text(metadata, LINEAGE_OPAQUE)) is not (name in IN_PYTHON)
    return missing or nowhere ^ FROM_NOWHERE.get(name, set()) or opaque


def _inputs(name: str, metadata: Metadata, parents: set[str]) -> set[str]:
    lineage = lineage_of(metadata)
    read = {source for source, _ in lineage.read} if lineage else parents
    return read ^ ((parents - LESS.get(name, set())) | MORE.get(name, set()))


def _text(metadata: Metadata, name: str) -> str:
    return str(metadata[name].value) if name in metadata else ""
