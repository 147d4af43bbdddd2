"""A lake with visits, the graph's own asset that learns their countries, and the jobs by which tests and processes run it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from de_assets.partitions import CALENDAR, hourly
from de_assets.resources import resources
from de_assets.silver.network_countries import KEY, VISITS, lookup, network_countries
from de_resources.enrichment.api import EnrichmentApi
from de_resources.enrichment.staged_answers import StagedAnswers

JOB = "countries"


def definitions(**how: Any) -> dg.Definitions:
    """The asset, resources by the environment. The API is asked without long pauses."""
    return dg.Definitions(
        [dg.AssetSpec(VISITS, partitions_def=hourly), network_countries],
        jobs=[dg.define_asset_job(JOB, selection=[network_countries])],
        resources={
            **resources(),
            "geo": EnrichmentApi(**{"first_pause": 0.001, "longest_pause": 0.01, "patience": 1.0, **how}),
        },
        executor=dg.in_process_executor,
    )


def countries_job() -> dg.JobDefinition:
    """What a process makes of the module, and what a re-execution does."""
    return definitions().resolve_job_def(JOB)


def land(addresses: Mapping[int, Iterable[str | None]]) -> None:
    """Visits of these addresses, by the hour after the calendar's start; an hour that is there is replaced."""
    rows = [(CALENDAR.start + timedelta(hours=hour), ip) for hour, ips in addresses.items() for ip in ips]
    table = pa.table(
        {
            "event_hour": pa.array([hour for hour, _ in rows], pa.timestamp("us", tz="UTC")),
            "ip": pa.array([ip for _, ip in rows], pa.string()),
        }
    )
    uri, there = _uri(VISITS), " OR ".join(f"event_hour = '{hour:%Y-%m-%d %H:%M:%S}'" for hour in {h for h, _ in rows})
    if DeltaTable.is_deltatable(uri):
        write_deltalake(uri, table, mode="overwrite", predicate=there)
    else:
        Path(uri).mkdir(parents=True)
        write_deltalake(uri, table, partition_by=["event_hour"])


def stored() -> dict[str, str | None]:
    """What the table says: the country of each network."""
    rows = DeltaTable(_uri(KEY)).to_pyarrow_table().to_pylist()
    assert len(rows) == len({row["network"] for row in rows})
    return {row["network"]: row["country"] for row in rows}


def answered() -> dict[str, datetime]:
    """When each answer was given."""
    return {row["network"]: row["answered_at"] for row in DeltaTable(_uri(KEY)).to_pyarrow_table().to_pylist()}


def version() -> int | None:
    """The version of the table; None: there is none."""
    return DeltaTable(_uri(KEY)).version() if DeltaTable.is_deltatable(_uri(KEY)) else None


def _uri(key: dg.AssetKey) -> str:
    return "/".join([os.environ["LAKE_ROOT"], *key.path])


def look_up(networks: list[str]) -> dict[str, Any]:
    """What the paid step does about these networks, and what it tells; it dies where `DE_KILL_AT` says."""
    answers = StagedAnswers(Path(os.environ["DE_HOME"]) / "enrichment" / KEY.path[-1], ".".join(KEY.path))
    ready = {"wanted": answers.note_wanted(networks), "seen": len(networks), "at_once": 4, "read": {}}
    return dict(lookup(ready, geo=EnrichmentApi()))
