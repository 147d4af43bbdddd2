"""How a row is found that is kept outside of the lake: a row of the database, a record of a topic. For `de trace`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from de_resources.contract import Contract
from de_resources.kafka import KafkaBroker
from de_resources.kafka.stream import placed, topic_slice
from de_resources.kafka.topic import Topic
from de_resources.lineage.recorded import RecordedDataset
from de_resources.postgres import PostgresDatabase
from de_resources.sql.identifiers import identifier
from de_resources.tracing.makers import OUTSIDE, Maker
from de_resources.tracing.trace import NotTraceable, Outside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from de_resources.tracing.trace import Key

PLACE = ("partition", "offset")
"""By what a record of a topic is named."""


@dataclass(frozen=True)
class OutsideRows:
    """The database and the broker, and the instance that knows which run has written to them."""

    instance: dg.DagsterInstance
    calendars: Mapping[str, dg.PartitionsDefinition | None]
    database: PostgresDatabase = field(default_factory=PostgresDatabase)
    broker: KafkaBroker = field(default_factory=KafkaBroker)

    @classmethod
    def of_graph(cls, instance: dg.DagsterInstance, locations: Iterable[dg.Definitions]) -> OutsideRows:
        """With the calendars of all locations."""
        graphs = [location.resolve_asset_graph() for location in locations]
        return cls(
            instance, {k.to_user_string(): g.get(k).partitions_def for g in graphs for k in g.get_all_asset_keys()}
        )

    def of(self, name: str, told: RecordedDataset) -> Outside | None:
        """How a row of the dataset is found; None for one of another kind, or without a contract."""
        path = told.metadata.get("contract")
        if not path or not told.kinds & {"postgres", "kafka"}:
            return None
        contract = Contract.load(str(path))
        if "kafka" in told.kinds:
            records = partial(self._record, name, contract)
            return Outside(PLACE, records, contract.redact, partial(self._run_of_record, name))
        rows = partial(self._row, contract)
        return Outside(contract.key, rows, contract.redact, partial(self._run_of_partition, name, told.metadata))

    def _row(self, contract: Contract, session: SparkSession, key: Key) -> DataFrame:
        types = {column.name: column.type for column in contract.columns}
        rows = session.read.format("jdbc").options(**self.database.jdbc_options(contract.name)).load()
        for column, text in key.items():
            own = F.col(identifier(column))
            rows = rows.where(own.isNull() if text is None else own == F.lit(text).try_cast(types[column]))
        return rows

    def _record(self, name: str, contract: Contract, session: SparkSession, key: Key) -> DataFrame:
        partition, offset = (_number(name, column, key[column]) for column in PLACE)
        topic = self._topic(name)
        ends = Topic(self.broker.client_config(), topic).ends()
        if not 0 <= offset < ends.get(partition, 0):
            why = f"`{topic}` has no record at offset {offset:,} of partition {partition}"
            raise NotTraceable(name, why)
        # Of the others nothing: a topic is read between offsets of all its partitions.
        start = {**ends, partition: offset}
        records = placed(topic_slice(session, self.broker, topic, start, {**ends, partition: offset + 1}))
        told = F.from_json(F.col("payload").cast("string"), contract.struct_type()).alias("told")
        return records.select("topic_partition", "topic_offset", "append_time", told).select("*", "told.*").drop("told")

    def _topic(self, name: str) -> str:
        event = self.instance.get_latest_materialization_event(dg.AssetKey.from_user_string(name))
        told = event.asset_materialization.metadata.get("topic") if event and event.asset_materialization else None
        if told is None:
            raise NotTraceable(name, "no run has recorded the topic that it writes to")
        return str(told.value)

    def _run_of_record(self, name: str, row: Mapping[str, Any]) -> tuple[Maker, ...]:
        """The first run that ended its writing after the broker took the record: one run writes to the topic at a time."""
        return self._run(name, after_timestamp=row["append_time"].timestamp(), ascending=True)

    def _run_of_partition(self, name: str, metadata: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[Maker, ...]:
        """The newest run of the row's partition, which has replaced it. Without partitions nobody has recorded it."""
        calendar, column = self.calendars.get(name), metadata.get("partition_expr")
        if not isinstance(calendar, dg.TimeWindowPartitionsDefinition) or not column or row.get(column) is None:
            return ()
        return self._run(
            name, asset_partitions=[calendar.get_partition_key_for_timestamp(_midnight(row[column]).timestamp())]
        )

    def _run(self, name: str, *, ascending: bool = False, **wanted: Any) -> tuple[Maker, ...]:
        asked = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(name), **wanted)
        records = self.instance.fetch_materializations(asked, limit=1, ascending=ascending).records
        return tuple(Maker(OUTSIDE, record.run_id) for record in records)


def _number(name: str, column: str, text: str | None) -> int:
    if text is None or not text.isdecimal():
        raise NotTraceable(name, f"`{column}` is a number, such as {column}=0")
    return int(text)


def _midnight(value: date | datetime) -> datetime:
    return (
        value.astimezone(UTC)
        if isinstance(value, datetime)
        else datetime(value.year, value.month, value.day, tzinfo=UTC)
    )
