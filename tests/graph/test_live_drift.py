"""The producer of the live visits renames an optional field: red with the run that brings the first records. Real tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyspark.sql.types as T
import pytest
from examples import generated
from hypothesis import strategies as st
from instances import silent_instance
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_assets.bronze.visits_stream import understood_or_explained
from de_assets.contracts.visits import VisitsStream
from de_assets.contracts.visits_live import VisitsLive
from de_assets.resources import resources
from de_assets.silver.visits_live import checks, live_visits
from de_checks.stream_drift import FILLED
from de_checks.unknown_fields import count_unknown, unknown_counts
from de_resources.contract import Contract
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("online_observer")

START = datetime(2026, 1, 5, 10, tzinfo=UTC)
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
PERSON = "ann@example.org"


class Topic:
    """A topic as bronze has it, and the runs that follow it."""

    def __init__(self, engine: SparkEngine, root: Path, instance: dg.DagsterInstance) -> None:
        self.engine, self.root, self.instance, self.offset = engine, root, instance, 0
        settings = Settings.from_environment({"DE_HOME": str(root.parent), "LAKE_ROOT": str(root)})
        self.resources = resources(settings, engine)
        (self.check,) = (c for c in checks if any(s.name == "schema_has_not_drifted" for s in c.check_specs))

    def bring(self, number: int, context: dict[str, Any], **more: Any) -> dg.AssetCheckEvaluation:
        """That many visits of this form, and the run that takes them in."""
        records = []
        for offset in range(self.offset, self.offset + number):
            at = START + timedelta(seconds=offset)
            told = {"visit_id": f"v{offset}", "event_time": at.isoformat(), "user_id": "u", "page": "p"}
            records.append((json.dumps({**told, "context": context, **more}).encode(), 0, offset, at))
        self.offset += number
        frame = self.engine.spark_session.createDataFrame(
            records, "value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
        )
        understood_or_explained(frame.coalesce(1)).write.format("delta").mode("append").save(
            str(self.root / "bronze/visits_stream")
        )
        return self._run(None)

    def began_with(self, rows: int, *filled: str) -> dg.AssetCheckEvaluation:
        """An earlier run is on record, in which so many visits had these optional fields; what the check said of it."""
        columns = {c.name: rows * (c.name in filled) for c in Contract.of(VisitsLive).columns if c.nullable}
        told = {FILLED: {"rows": rows, "columns": columns, "unknown_fields": {}}}
        self.instance.report_runless_asset_event(dg.AssetMaterialization(["silver", "visits_live"], metadata=told))
        return self._run(dg.AssetSelection.checks(self.check))

    def _run(self, selection: dg.AssetSelection | None) -> dg.AssetCheckEvaluation:
        upstream = dg.AssetSpec(["bronze", "visits_stream"], metadata={"contract": Contract.of(VisitsStream).path})
        done = dg.materialize(
            [upstream.with_io_manager_key("io_manager"), live_visits, self.check],
            selection=selection,
            instance=self.instance,
            resources=self.resources,
            run_config=QUIET,
        )
        (evaluation,) = done.get_asset_check_evaluations()
        return evaluation


@pytest.fixture
def topic(engine: SparkEngine, tmp_path: Path) -> Iterator[Topic]:
    with silent_instance() as instance:
        yield Topic(engine, tmp_path / "lake", instance)


@pytest.mark.red_check("schema_has_not_drifted")
def test_a_renamed_field_of_a_live_topic_is_red_at_once(topic: Topic) -> None:
    ordinary, renamed = {"referral": "r", "user": {"ip": "192.0.2.1"}}, {"referrer": "r", "user": {"ip": "192.0.2.1"}}
    assert topic.began_with(30, "referral", "ip").passed
    seen = topic.bring(1, renamed, **{PERSON: 1})
    assert (seen.passed, seen.severity) == (False, dg.AssetCheckSeverity.ERROR)
    told = str(seen.description)
    assert "`referral` is absent from all 1 rows, where at least 100.0% had it before" in told
    assert "New: `context.referrer` and 1 more. Was it renamed?" in told
    recorded = "".join(str(entry) for run in topic.instance.get_run_ids() for entry in topic.instance.all_logs(run))
    assert PERSON not in recorded, "a name that is a value is told nowhere"

    mended = topic.bring(1, ordinary)
    assert mended.passed, mended.description


def test_every_unknown_field_is_counted_and_no_other(spark: SparkSession) -> None:
    """Held against a plain program that reads the same records."""
    inner = T.StructType([T.StructField("ip", T.StringType()), T.StructField("login", T.StringType())])
    promised = T.StructType(
        [
            T.StructField("id", T.StringType()),
            T.StructField("user", inner),
            T.StructField("m", T.MapType(T.StringType(), T.StringType())),
        ]
    )
    names = st.sampled_from(["id", "user", "m", "x", "y-z", "ip", PERSON, "", "ünknown"])
    objects = st.dictionaries(
        names, st.one_of(st.none(), st.integers(), st.dictionaries(names, st.integers())), max_size=6
    )

    def unknown(record: dict[str, Any]) -> list[str]:
        def safe(name: str) -> str:
            return name if name in {"id", "user", "m", "x", "y-z", "ip"} else "?"

        user = record.get("user")
        nested = [f"user.{safe(n)}" for n in user if n not in {"ip", "login"}] if isinstance(user, dict) else []
        return [safe(n) for n in record if n not in {"id", "user", "m"}] + nested

    worlds = generated(st.lists(objects, min_size=1, max_size=8), 40)
    others: list[str | None] = ["no object", "[1]", None]
    texts = [(n, text) for n, world in enumerate(worlds) for text in [*map(json.dumps, world), *others]]
    frame = spark.createDataFrame(texts, "world INT, raw STRING").coalesce(1)
    counted = frame.groupBy("world").agg(count_unknown(F.col("raw"), promised).alias("unknown")).collect()
    found = {row["world"]: unknown_counts(row["unknown"]) for row in counted}
    for n, world in enumerate(worlds):
        assert found[n] == Counter(name for record in world for name in set(unknown(record))), world
