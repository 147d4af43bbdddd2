"""Which pages each visit was announced with, counted in the partition of the topic in which its records lie.

Grain: one visit of the topic. Pattern: Local Aggregator - the topic is keyed by visit, so that a partition has all records of
one, and is aggregated where it is read, without an exchange. A producer may announce a visit more than once; one with several
pages has a producer that contradicts itself.

A run counts what the topic holds and replaces the table. The consumer group `pages_per_visit` remembers where it ended, and by
that of how many partitions the topic was: where that has changed, a key may have moved.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from de_assets.automation.triggers.polling import behind, poll
from de_assets.contracts.visits_live import PagesPerVisit
from de_assets.dataset import dataset, reads
from de_assets.sources.systems import VISITS_TOPIC
from de_assets.sources.topics import VISITS
from de_assets.transforms.data_value.local_aggregator import aggregate_parts, keys_in_several_parts
from de_assets.transforms.error_management.visit_parser import ERROR, parse_visits
from de_checks.contract import contract_check
from de_checks.keys import unique_key_check
from de_resources.contract import Contract
from de_resources.delta.observed_frame import MetadataByWindow, ObservedFrame
from de_resources.errors import PermanentError
from de_resources.kafka import KafkaBroker
from de_resources.kafka.append_log import AppendLog
from de_resources.kafka.checkpoints import Checkpoint, GroupCheckpoints
from de_resources.kafka.stream import partition_slice
from de_resources.lineage.inputs import read_as
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine

CONSUMER = "pages_per_visit"
KEY = "visit_id"
SHOWN = 3


class PartitionsChanged(PermanentError):
    """A topic with another number of partitions than at the last run."""

    def __init__(self, topic: str, before: int, now: int) -> None:
        self.topic, self.before, self.now = topic, before, now
        super().__init__(
            f"`{topic}` had {before} partitions when it was read last, and has {now}: records of one key may lie in "
            "two of them, and would be counted apart. Nothing was written. When the topic holds no record of before any more, "
            f"or its records were written again, delete the consumer group `{CONSUMER}` at the broker, and run."
        )


class KeyInTwoPartitions(PermanentError):
    """A key whose records lie in more than one partition."""

    def __init__(self, topic: str, keys: list[str]) -> None:
        self.topic, self.keys = topic, keys
        super().__init__(
            f"`{topic}` has records of one key in several partitions ({', '.join(keys)}): they would be counted apart. Nothing "
            "was written. Its producers do not partition by key, or not all in the same way: have them do so, and write "
            "those records again."
        )


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(PagesPerVisit, patterns=["local_aggregator"], **reads(VISITS, f"group {CONSUMER}")),
    deps=[VISITS_TOPIC],
)
def pages_per_visit(broker: KafkaBroker, spark: SparkEngine) -> Iterator[dg.Output[ObservedFrame]]:
    """Count what the topic holds now. Raises `PartitionsChanged` and `KeyInTwoPartitions`, and then writes nothing."""
    broker.check()
    log = AppendLog(broker.client_config(), VISITS)
    positions = GroupCheckpoints(log, CONSUMER)
    before, begins, ends = positions.read(), log.begins(), log.ends()
    done = Checkpoint(log.identity(), ends)
    if before is not None and before.topic_id == done.topic_id and len(before.offsets) != len(ends):
        raise PartitionsChanged(VISITS, len(before.offsets), len(ends))
    session = spark.spark_session
    parts = [partition_slice(session, broker, VISITS, p, begins[p], end) for p, end in sorted(ends.items())]
    counted = counted_per_visit([read_as(part, VISITS_TOPIC) for part in parts]).persist()
    try:
        if keys := keys_in_several_parts(counted, KEY, SHOWN):
            raise KeyInTwoPartitions(VISITS, keys)
        without, known = Observation(), F.col(KEY).isNotNull()
        seen = counted.observe(without, F.coalesce(F.sum(F.when(~known, F.col("announcements"))), F.lit(0)).alias("n"))

        def written() -> MetadataByWindow:
            positions.commit(done)
            return {None: {"topic/partitions": len(ends), "topic/records_without_key": int(without.get["n"])}}

        kept = seen.where(known).select(*Contract.of(PagesPerVisit).column_names)
        yield dg.Output(ObservedFrame(kept, written))
    finally:
        counted.unpersist()


def counted_per_visit(parts: list[DataFrame]) -> DataFrame:
    """A row for each key of each partition's records, null among them. A record that is not understood has no page."""
    measures = {
        "announcements": F.count(F.lit(1)),
        "pages": F.sort_array(F.collect_set("page")),
        "topic_partition": F.min("topic_partition"),
        "first_announced": F.min("append_time"),
        "last_announced": F.max("append_time"),
    }
    return aggregate_parts([_keyed(part) for part in parts], KEY, measures)


def _keyed(records: DataFrame) -> DataFrame:
    """Records under the key that decided about their partition; what the value says of itself decides about nothing."""
    parsed = parse_visits(records.withColumnRenamed("key", "record_key"), "value")
    return parsed.select(
        F.col("record_key").cast("string").alias(KEY),
        F.when(F.col(ERROR).isNull(), F.col("page")).alias("page"),
        F.col("partition").alias("topic_partition"),
        F.col("timestamp").alias("append_time"),
    )


def _to_do(context: dg.ScheduleEvaluationContext) -> str | None:
    """Records that the consumer has not read."""
    resources: Any = context.resources
    log = AppendLog(resources.broker.client_config(), VISITS)
    checkpoint = GroupCheckpoints(log, CONSUMER).read()
    return behind(log, checkpoint.offsets if checkpoint else None)


checks = [contract_check(pages_per_visit, blocking=False), unique_key_check(pages_per_visit, blocking=False)]
polls = [
    poll(
        pages_per_visit,
        "0 * * * *",
        _to_do,
        resources=["broker"],
        # The broker forgets a group's offsets after a week without a commit.
        renewed_after=timedelta(days=3),
    )
]
