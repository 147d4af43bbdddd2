"""Live visits, judged run by run, with crashes between the tables: what one record after the other would have given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from instances import silent_instance
from stream_reference import Record, cuts, simulated, verdicts

from de_assets import __version__
from de_assets.bronze.visits_stream import understood_or_explained
from de_assets.contracts.visits import VisitsStream
from de_assets.contracts.visits_live import VisitsLive
from de_assets.resources import resources
from de_assets.silver.visits_live import RULE, checks, live_visits
from de_resources.contract import Contract
from de_resources.delta.write.crash_points import at
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

START = int(datetime(2026, 1, 5, 10, tzinfo=UTC).timestamp())
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
PERSON = "ann@example.org"
ASSETS = dg.AssetSelection.assets(live_visits).without_checks()


class Killed(Exception):
    """Stands for the end of the process."""


def message(record: Record) -> tuple[bytes, int, int, datetime]:
    visit = {"visit_id": record.key, "user_id": "u", "page": "p", "keep_private": False, "context": {"referrer": "r"}}
    visit[PERSON] = 1  # a name that nobody knows may be a value
    if record.event is not None:
        visit["event_time"] = datetime.fromtimestamp(record.event, UTC).isoformat()
    return json.dumps(visit).encode(), record.source, record.position, datetime.fromtimestamp(record.arrived, UTC)


@dataclass
class Live:
    """A topic as bronze has it, and the runs that follow it."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    runs: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    evaluations: list[dg.AssetCheckEvaluation] = field(default_factory=list)

    def load(self, records: list[Record]) -> None:
        """Append to bronze, which is read of the topic once: how a table grows is no question here."""
        wanted = {(record.source, record.position) for record in records}
        places = zip(*(self.bronze[name].to_pylist() for name in ("topic_partition", "topic_offset")), strict=True)
        rows = self.bronze.filter(pa.array([place in wanted for place in places]))
        write_deltalake(str(self.root / "bronze/visits_stream"), rows, mode="append")

    @cached_property
    def bronze(self) -> pa.Table:
        """All records of the topic as bronze says them."""
        frame = self.engine.spark_session.createDataFrame(
            [message(record) for record in STREAM], "value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
        )
        return understood_or_explained(frame).toArrow()

    def run(self, selection: dg.AssetSelection | None = None, *, killed_after: str | None = None) -> bool:
        """One run; `killed_after` is the table after whose commit it ends. Whether it succeeded."""

        def die(table: str) -> None:
            if table == killed_after:
                raise Killed(table)

        settings = Settings.from_environment({"DE_HOME": str(self.root.parent), "LAKE_ROOT": str(self.root)})
        upstream = dg.AssetSpec(["bronze", "visits_stream"], metadata={"contract": Contract.of(VisitsStream).path})
        with at("after_commit", die) if killed_after else nullcontext():
            result = dg.materialize(
                [upstream.with_io_manager_key("io_manager"), live_visits, *checks],
                selection=selection,
                instance=self.instance,
                resources=resources(settings, self.engine),
                run_config=QUIET,
                raise_on_error=False,
            )
        self.runs.append(
            {
                event.asset_key.path[-1]: {k: v.value for k, v in event.materialization.metadata.items()}
                for event in result.get_asset_materialization_events()
                if event.asset_key is not None
            }
        )
        self.evaluations = result.get_asset_check_evaluations()
        return result.success

    def rows(self, table: str) -> list[Any]:
        """By another reader than the engine."""
        found = DeltaTable(str(self.root / "silver" / table)).to_pyarrow_table().to_pylist()
        return [SimpleNamespace(**row) for row in found]

    def found(self) -> dict[tuple[int, int], str]:
        """What the three tables say of each record that they have; each is in one of them, once."""
        every = [(row.topic_partition, row.topic_offset, "valid") for row in self.rows("visits_live")]
        every += [(row.topic_partition, row.topic_offset, row.verdict) for row in self.rows("visits_live_late")]
        every += [(row.topic_partition, row.topic_offset, "malformed") for row in self.rows("visits_live_dead_letter")]
        assert len(every) == len({place[:2] for place in every})
        return {(source, position): verdict for source, position, verdict in every}


STREAM = simulated(5, 160, START)
PIECES = cuts(STREAM, 3, 3)
EXPECTED, WATERMARKS = verdicts(STREAM, RULE)
KEPT = {place: verdict for place, verdict in EXPECTED.items() if verdict != "duplicates"}


@pytest.fixture(scope="module")
def live(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The stream in three pieces; of the second, a run dies when two of the tables that come before the state are written."""
    assert engine.spark_session is not None
    with silent_instance() as instance:
        live = Live(engine, tmp_path_factory.mktemp("live") / "lake", instance)
        live.load(PIECES[0])
        assert live.run(ASSETS)
        live.load(PIECES[1])
        assert not live.run(ASSETS, killed_after="silver.visits_live_late")
        live.load(PIECES[2])
        assert live.run()
        yield live


@pytest.mark.faults
@pytest.mark.pattern("late_data_detector", "windowed_deduplicator", "data_overwrite")
def test_runs_and_crashes_leave_what_one_record_after_the_other_gives(live: Live) -> None:
    assert Counter(EXPECTED.values()).keys() == {"valid", "late", "future", "duplicates", "malformed"}
    assert live.found() == KEPT
    marks = {
        (row.topic_partition, row.topic_offset): row.watermark.timestamp()
        for row in live.rows("visits_live_late")
        if row.watermark
    }
    arrived = {(r.source, r.position): r.arrived for r in STREAM}
    assert marks == {place: WATERMARKS[arrived[place]] for place in marks}


@pytest.mark.faults
@pytest.mark.pattern("late_data_detector")
def test_runs_that_died_after_the_first_and_after_the_last_table_are_taken_up(
    engine: SparkEngine, tmp_path: Path
) -> None:
    with silent_instance() as instance:
        live = Live(engine, tmp_path / "lake", instance)
        live.load([record for piece in PIECES for record in piece])
        assert not live.run(ASSETS, killed_after="silver.visits_live_dead_letter")
        assert not live.run(ASSETS, killed_after="silver.visits_live")
        assert live.run(ASSETS)
        assert live.found() == KEPT


@pytest.mark.pattern("dead_letter")
def test_what_was_not_understood_is_kept_with_reason_field_and_place(live: Live) -> None:
    sent = {(r.source, r.position): message(r)[0] for r in STREAM}
    letters = live.rows("visits_live_dead_letter")
    assert {(row.topic_partition, row.topic_offset) for row in letters} == {
        place for place, verdict in EXPECTED.items() if verdict == "malformed"
    }
    for row in letters:
        assert bytes(row.payload) == sent[row.topic_partition, row.topic_offset] == row.raw.encode()
        assert (row.reason, row.field) == ("visit_id is missing", "visit_id")
        assert row.job_version == __version__
    told = {e.check_name: e for e in live.evaluations if e.check_name.startswith("dead_letters")}
    second = Counter(EXPECTED[record.source, record.position] for piece in PIECES[1:] for record in piece)
    assert set(told) == {"dead_letters_are_few", "dead_letters_do_not_prevail"}
    for evaluation in told.values():
        counted = {key: evaluation.metadata[key].value for key in ("valid", "dead")}
        assert counted == {"valid": second["valid"], "dead": second["malformed"]}


@pytest.mark.pattern("filter_interceptor")
def test_the_filter_gives_an_account_per_window_of_processing_time(live: Live) -> None:
    second = [record for piece in PIECES[1:] for record in piece]
    told = live.runs[-1]["visits_live"]
    assert told["filter/rows_in"] == len(second)
    expected: dict[str, Counter[str]] = {}
    for record in second:
        start = datetime.fromtimestamp(record.arrived - record.arrived % 600, UTC).isoformat()
        expected.setdefault(start, Counter())[EXPECTED[record.source, record.position]] += 1
    names = {"understood": "malformed", "first_copy": "duplicates", "not_late": "late", "not_in_the_future": "future"}
    found = {
        start: Counter({names[name]: removed["first"] for name, removed in window["conditions"].items()})
        + Counter(valid=window["rows_kept"])
        for start, window in told["filter/windows"].items()
    }
    assert found == expected
    by_hour = live.runs[-1]["visits_live_late"]["filter/by_hour"]
    assert sum(hour["rows_in"] for hour in by_hour.values()) == len(second)


@pytest.mark.pattern("online_observer")
def test_a_run_counts_the_rows_that_were_understood_and_the_fields_that_they_have(live: Live) -> None:
    second = [record for piece in PIECES[1:] for record in piece]
    understood = sum(EXPECTED[record.source, record.position] != "malformed" for record in second)
    told = live.runs[-1]["visits_live"]["stream/filled"]
    assert told["rows"] == understood
    optional = {column.name for column in Contract.of(VisitsLive).columns if column.nullable}
    assert told["columns"] == dict.fromkeys(optional, 0) | {"keep_private": understood}
    assert told["unknown_fields"] == {"context.referrer": understood, "?": understood}
    recorded = "".join(str(entry) for run in live.instance.get_run_ids() for entry in live.instance.all_logs(run))
    assert PERSON not in recorded, "a name that is a value is told nowhere"
    (judged,) = [each for each in live.evaluations if each.check_name == "schema_has_not_drifted"]
    assert judged.passed


@pytest.mark.pattern("late_data_detector", "windowed_deduplicator")
def test_the_state_tells_the_totals_and_how_far_it_came(live: Live) -> None:
    sources = [row for row in live.rows("visits_live_state") if row.entry == "source"]
    totals = {(row.source, verdict): getattr(row, verdict) for row in sources for verdict in set(EXPECTED.values())}
    expected = Counter((source, verdict) for (source, _), verdict in EXPECTED.items())
    assert {key: n for key, n in totals.items() if n} == expected
    told = live.runs[-1]["visits_live_state"]
    last = max(r.arrived for r in STREAM)
    assert told["stream/watermark_seconds"] == WATERMARKS[last]
    assert told["stream/lag_seconds"] == last - (WATERMARKS[last] or 0)
    assert told["dagster/row_count"] == len(live.rows("visits_live_state"))
    assert {e.check_name: e.passed for e in live.evaluations if e.check_name == "nothing_is_lost"} == {
        "nothing_is_lost": True
    }


@pytest.mark.pattern("late_data_detector")
def test_nothing_new_writes_nothing_and_a_loss_is_found(live: Live) -> None:
    path = f"delta.`{live.root}/silver/visits_live_late`"
    live.engine.spark_session.sql(f"DELETE FROM {path} WHERE verdict = 'future' AND topic_partition = 0")
    assert live.run()
    assert live.runs[-1] == {}
    lost = sum(verdict == "future" and source == 0 for (source, _), verdict in KEPT.items())
    assert live.run(dg.AssetSelection.checks(checks[-1]))
    (evaluation,) = live.evaluations
    assert not evaluation.passed
    late = sum(v in ("late", "future") and source == 0 for (source, _), v in KEPT.items())
    differences = evaluation.metadata["differences"].value
    assert differences == {"silver/visits_live_late": {"0": {"expected": late, "found": late - lost}}}
