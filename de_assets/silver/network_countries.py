"""The countries of the networks from which the blog is visited, learned from an API that is paid for by the value.

Grain: one network. Patterns: Local Sequencer - `readiness`, `lookup` and `expose` are steps with restart boundaries: what a
step has found is on the disk, and a re-execution from a failure repeats none of the steps before it. Static Joiner - the API is
asked in bulk, for each network once, and only for those that this table does not have.

| step        | does                                                      | a rerun of it                      |
|-------------|-----------------------------------------------------------|------------------------------------|
| `readiness` | looks which networks are new, and whether the API answers | looks again; nothing is paid for   |
| `lookup`    | asks, and stages each bulk call's answers                 | asks for what is not staged        |
| `expose`    | merges the staged answers in one commit                   | changes nothing                    |

A death between an answer and its file loses one bulk call, which is paid for again.

Rows and what they were made of are written together, by one step: they are one commit and are not split. Addresses are about
people, and stay here: the API is told networks only.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.triggers.polling import poll
from de_assets.contracts.networks import NetworkCountries
from de_assets.contracts.visits import Visits
from de_assets.dataset import dataset
from de_assets.transforms.data_value.networks import networks_of
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.delta.log.changed_partitions import changed_partitions
from de_resources.delta.read_versions import ReadVersions, version_read
from de_resources.delta.table import Table, TableMissing
from de_resources.enrichment.api import EnrichmentApi
from de_resources.enrichment.staged_answers import StagedAnswers
from de_resources.lake import Lake
from de_resources.lineage.inputs import made_of
from de_resources.retries import RETRY_TRANSIENT
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

VISITS = dg.AssetKey(["silver", "visits"])
KEY = dg.AssetKey(["silver", "network_countries"])
CONTRACT = Contract.of(NetworkCountries)

MAX_AGE = timedelta(days=90)
"""How long an answer holds. Networks move rarely."""
KEPT = timedelta(days=14)
"""How long staged answers are kept: so long can a failed run be re-executed without paying again."""
FIELDS = {"country": "[A-Z]{2}"}
_WAIT_SECONDS = 120.0

Facts = Mapping[str, Any]
"""What a step tells the next one: names, numbers and versions, never rows. On the disk between them (`facts`)."""


@dg.op(
    name="network_readiness",
    description="Which networks are new, and does the API answer about so many? Pays for nothing.",
    ins={"visits": dg.In(dg.Nothing)},
    out=dg.Out(io_manager_key="facts"),
    retry_policy=RETRY_TRANSIENT,
)
def readiness(context: dg.OpExecutionContext, lake: Lake, spark: SparkEngine, geo: EnrichmentApi) -> Facts:
    """Raises `QuotaTooSmall` before anything is paid for, and `ApiUnavailable` where nobody answers."""
    visits, since = _visits(lake), _last_read(context.instance, lake)
    read = ReadVersions()
    read.note(visits)
    if not read.tables:
        raise TableMissing(visits.name)
    seen = networks_of(_addresses(spark, visits, since, read.tables[visits.name]["version"]))
    new = _unknown(spark, lake.table(KEY), seen, datetime.now(UTC) - MAX_AGE)
    with geo.open() as api:
        quota = api.require_quota(len(new))
    answers = _answers()
    answers.sweep(datetime.now(UTC) - KEPT)
    return {"wanted": answers.note_wanted(new), "seen": len(seen), "at_once": quota.values, "read": read.tables}


@dg.op(
    name="network_lookup",
    description="Asks the API in bulk about the networks that nobody has asked for yet, and stages what it answers.",
    out=dg.Out(io_manager_key="facts"),
    retry_policy=RETRY_TRANSIENT,
)
def lookup(ready: Facts, geo: EnrichmentApi) -> Facts:
    """Each answer is on the disk before the next call: whatever happens then, it is not paid for again."""
    answers, oldest = _answers(), datetime.now(UTC) - MAX_AGE
    wanted = answers.wanted(ready["wanted"])
    with answers.alone(_WAIT_SECONDS):
        staged = answers.since(wanted, oldest)
        missing = [network for network in wanted if network not in staged]
        calls = requests = 0
        if missing:
            with geo.open() as api:
                for found in api.in_bulk(missing, ready["at_once"], FIELDS):
                    answers.add(found, datetime.now(UTC))
                calls, requests = api.calls, api.requests
        staged = answers.since(wanted, oldest)
    return {
        "batches": sorted({answer.batch for answer in staged.values()}),
        "read": ready["read"],
        "seen": ready["seen"],
        "api/calls": calls,
        "api/requests": requests,
        "api/values_asked": len(missing),
        "api/values_staged_before": len(wanted) - len(missing),
        "api/values_unknown": sum(answer.found is None for answer in staged.values()),
    }


@dg.op(
    name="network_exposure",
    description="Merges the staged answers into the table, in one commit.",
    out=dg.Out(io_manager_key="io_manager"),
    retry_policy=RETRY_TRANSIENT,
)
def expose(context: dg.OpExecutionContext, looked_up: Facts, spark: SparkEngine) -> DataFrame:
    """Asks nobody. The same answers again change nothing, and old ones do not replace newer ones."""
    told = {name: value for name, value in looked_up.items() if name.startswith("api/")}
    context.add_output_metadata({**told, "networks_seen": looked_up["seen"]})
    ReadVersions(looked_up["read"]).record(context)
    answers = _answers().read(looked_up["batches"])
    rows = [(a.value, (a.found or {}).get("country"), a.answered_at, a.batch) for a in answers]
    frame = spark.spark_session.createDataFrame(rows, CONTRACT.struct_type())
    return made_of(frame, VISITS, ["ip", "event_hour"])


_DECLARED = dataset(
    NetworkCountries, patterns=["local_sequencer", "static_joiner"], mode="merge", merge_order="answered_at"
)
del _DECLARED["io_manager_key"]  # that of the last step's output


@dg.graph_asset(ins={"visits": dg.AssetIn(VISITS, dagster_type=dg.Nothing)}, **_DECLARED)
def network_countries(visits: Any) -> Any:
    """Readiness, lookup, exposure."""
    ready = readiness.alias("readiness")(visits)
    return expose.alias("expose")(lookup.alias("lookup")(ready))


def _answers() -> StagedAnswers:
    return StagedAnswers(Settings.from_environment().home / "enrichment" / KEY.path[-1], CONTRACT.name)


def _visits(lake: Lake) -> Table:
    return lake.table(VISITS, {"contract": Contract.of(Visits).path})


def _last_read(instance: dg.DagsterInstance, lake: Lake) -> int | None:
    """The version of the visits whose networks are in the table; None: not known, or it is another table now."""
    visits, own = _visits(lake).newest(), lake.table(KEY).newest()
    last = instance.get_latest_materialization_event(KEY)
    if visits is None or own is None or last is None or last.asset_materialization is None:
        return None
    read = version_read(last.asset_materialization.metadata, Contract.of(Visits).name, visits[1])
    return read if read is not None and read <= visits[0] else None


def _addresses(spark: SparkEngine, visits: Table, since: int | None, version: int) -> list[str]:
    """The distinct addresses of the hours that changed after a version: all hours, where it is not known."""
    rows = visits.read(spark.spark_session, version)
    if since is not None:
        hours = _changed_hours(visits, since)
        rows = rows.where(F.col("event_hour").isin(hours) if hours else F.lit(False))
    return [row.ip for row in rows.select("ip").where("ip IS NOT NULL").distinct().collect()]


def _changed_hours(visits: Table, since: int) -> list[datetime]:
    """As the log tells: nothing is read for it."""
    log = visits.log()
    if log is None:
        raise TableMissing(visits.name)
    values = [hour for (hour,) in changed_partitions(log, since).changed if hour is not None]
    return [datetime.fromisoformat(value).replace(tzinfo=UTC) for value in values]


def _unknown(spark: SparkEngine, table: Table, networks: list[str], oldest: datetime) -> list[str]:
    """Those of the networks about which the table has no answer that is young enough."""
    if not networks or table.log() is None:
        return networks
    session = spark.spark_session
    known = table.read(session).where(F.col("answered_at") >= F.lit(oldest)).select("network")
    asked = session.createDataFrame([(network,) for network in networks], "network string")
    return sorted(row.network for row in asked.join(known, "network", "left_anti").collect())


def _to_do(context: dg.ScheduleEvaluationContext) -> str | None:
    """Hours of visits that changed since the networks of the last run."""
    resources: Any = context.resources
    visits = _visits(resources.lake)
    if visits.log() is None:
        return None
    since = _last_read(context.instance, resources.lake)
    hours = _changed_hours(visits, -1 if since is None else since)
    return f"{len(hours)} hours of {VISITS.to_user_string()} changed" if hours else None


checks = [contract_check(network_countries, blocking=False), unique_key_check(network_countries, blocking=False)]
polls = [poll(network_countries, "20 * * * *", _to_do, resources=["lake"])]
