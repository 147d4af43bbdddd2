"""Sessions of the live visits, run by run: no watermark yet, clocks ahead, visitors unknown, a death, a state that is gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable, write_deltalake
from instances import silent_instance
from lineage_truth import problems

from de_assets.bronze import visits_stream
from de_assets.gold.sessions_stream import checks, sessions_stream
from de_assets.partitions import CALENDAR
from de_assets.resources import resources
from de_resources.delta.write.stream import CHECKPOINT
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("stateful_sessionizer")

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
RECORDS = "value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
BRONZE = dg.AssetSpec(["bronze", "visits_stream"])
BALANCED = "every_visit_is_accounted_for"
(JUDGES_ACCOUNT,) = (each for each in checks if BALANCED in {spec.name for spec in each.check_specs})
Found = tuple[str, float, float, int, str]


def at(minute: float) -> datetime:
    return CALENDAR.start + timedelta(minutes=minute)


def visit(user: str | None, minute: float, page: str = "home", taken: float | None = None) -> tuple[bytes, datetime]:
    value = {
        "visit_id": f"{user} {minute}",
        "user_id": user,
        "page": page,
        "event_time": at(minute).isoformat(),
        "context": {"referral": "https://there"},
    }
    return json.dumps(value).encode(), at(minute + 0.1 if taken is None else taken)


@dataclass
class Blog:
    """The topic as bronze has it, and the runs that make sessions of it."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    sent: int = 0
    told: list[Mapping[str, Any]] = field(default_factory=list)
    verdicts: dict[str, bool] = field(default_factory=dict)
    account: Mapping[str, int] = field(default_factory=dict)

    def come(self, *records: tuple[bytes, datetime]) -> None:
        rows = [(value, 0, self.sent + n, taken) for n, (value, taken) in enumerate(records)]
        self.sent += len(records)
        frame = self.engine.spark_session.createDataFrame(rows, RECORDS).coalesce(1)
        parsed = visits_stream.understood_or_explained(frame)
        path = self.root / "bronze" / "visits_stream"
        write_deltalake(str(path), parsed.toArrow(), mode="append")

    @property
    def resources(self) -> dict[str, Any]:
        settings = Settings.from_environment({"DE_HOME": str(self.root.parent), "LAKE_ROOT": str(self.root)})
        return resources(settings, self.engine)

    def run(
        self, what: dg.AssetSelection | None = None, judged: Sequence[dg.AssetChecksDefinition] = (JUDGES_ACCOUNT,)
    ) -> dg.ExecuteInProcessResult:
        done = dg.materialize(
            [BRONZE, sessions_stream, *judged],
            instance=self.instance,
            resources=self.resources,
            run_config=QUIET,
            raise_on_error=False,
            selection=what,
        )
        for event in done.get_asset_materialization_events():
            told = event.step_materialization_data.materialization.metadata
            self.told.append({name: value.value for name, value in told.items()})
        for each in done.get_asset_check_evaluations():
            self.verdicts[each.check_name] = each.passed
            if each.check_name == BALANCED:
                self.account = {name: int(str(value.value)) for name, value in each.metadata.items()}
        return done

    def rows(self) -> list[Found]:
        columns = ["user_id", "started_at", "ended_at", "visits", "closed_by", "first_referral"]
        found = [tuple(row.values()) for row in DeltaTable(self.table).to_pyarrow_table(columns=columns).to_pylist()]
        assert {referral for *_, referral in found} <= {"https://there"}
        return sorted((user, _minute(began), _minute(ended), visits, by) for user, began, ended, visits, by, _ in found)

    @property
    def table(self) -> Path:
        return self.root / "gold" / "sessions_stream"

    @property
    def checkpoint(self) -> Path:
        return self.table / CHECKPOINT


def _minute(moment: datetime) -> float:
    return (moment - CALENDAR.start) / timedelta(minutes=1)


@pytest.fixture
def blog(engine: SparkEngine, one_shuffle_partition: None, tmp_path: Path) -> Iterator[Blog]:
    with silent_instance() as instance:
        yield Blog(engine, tmp_path / "lake", instance)


@pytest.mark.red_check("every_visit_is_accounted_for")
def test_event_time_closes_sessions_whatever_is_late_ahead_killed_or_gone(blog: Blog) -> None:
    # The first batch has no watermark. Nobody's visit is no session; a visit of tomorrow closes nobody's.
    # Then it comes to 22 minutes: ann's and eve's sessions may go on, bob has left, and dan's has not begun.
    first = [visit("ann", 0), visit("ann", 20), visit("bob", 10, "logout"), visit("eve", 15), visit("dan", 52)]
    blog.come(*first, visit(None, 5), (b"{", at(9)), visit("mallory", 24 * 60, taken=21))
    assert blog.run().success
    bob = ("bob", 10, 10, 1, "closing_page")
    assert blog.rows() == [bob]
    # One row for each visitor who is remembered.
    assert (blog.told[0]["stream/state_rows"], blog.told[0]["stream/rows_too_late"]) == (3, 0)
    assert blog.told[0]["stream/state_bytes"] > 0
    assert blog.told[0]["stream/watermark"].startswith(f"{at(22):%Y-%m-%dT%H:%M:%S}")
    assert blog.account == {
        "visits": 5,
        "in_closed_sessions": 1,
        "in_open_sessions": 3,
        "waiting": 1,
        "late_at_most": 0,
        "missing": 0,
    }

    # Who is killed after the table's commit has not written down that the batch is done: the next run does it again.
    notes = sorted((blog.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    notes[-1].unlink()
    notes[-1].with_name(f".{notes[-1].name}.crc").unlink(missing_ok=True)
    # Sessions go on, out of order, with a copy; who has left returns. One of eve's belongs to her session, but half an hour
    # and more later ones had come before it.
    more = [visit("ann", 78), visit("ann", 49), visit("ann", 49), visit("eve", 44), visit("bob", 80)]
    blog.come(*more, visit("eve", 18, taken=90), visit("dan", 200))
    assert blog.run(judged=checks).success
    ann, eve = ("ann", 0, 78, 4, "inactivity"), ("eve", 15, 44, 2, "inactivity")
    returned, dan = ("bob", 80, 80, 1, "inactivity"), ("dan", 52, 52, 1, "inactivity")
    assert blog.rows() == [ann, bob, returned, dan, eve]
    assert (blog.told[1]["stream/state_rows"], blog.told[1]["stream/rows_too_late"]) == (1, 1)
    assert list(blog.verdicts.values()) == [True] * len(checks)
    assert blog.account == {
        "visits": 11,
        "in_closed_sessions": 9,
        "in_open_sessions": 0,
        "waiting": 1,
        "late_at_most": 1,
        "missing": 1,
    }
    graph = dg.Definitions([BRONZE, sessions_stream], resources=blog.resources)
    assert problems(blog.instance, graph) == {"gold/sessions_stream": {}}

    # A session that is gone from the table is noticed, for its visits are in none.
    whole, judge = DeltaTable(blog.table), dg.AssetSelection.checks(dg.AssetCheckKey(sessions_stream.key, BALANCED))
    DeltaTable(blog.table).delete("user_id = 'ann'")
    assert blog.run(judge).success
    assert (blog.account["missing"], blog.verdicts[BALANCED]) == (5, False)
    DeltaTable(blog.table).restore(whole.version())
    assert blog.run(judge).success
    assert (blog.account["missing"], blog.verdicts[BALANCED]) == (1, True)

    shutil.rmtree(blog.checkpoint / "state")
    blog.come(visit("dan", 300))
    (failure,) = blog.run().get_step_failure_events()
    error = failure.step_failure_data.error
    assert error is not None
    assert error.cause is not None
    assert "The state of the stream into `gold.sessions_stream`" in error.cause.message
    assert "Restore the table's folder from a backup" in error.cause.message


def test_a_stream_whose_table_was_removed_begins_again_with_all_that_is_there_and_nothing_is_late(blog: Blog) -> None:
    blog.come(visit("ann", 0), visit("eve", 15), visit("eve", 44), visit("dan", 200))
    assert blog.run().success
    # More than half an hour behind what came before it: the session that it belongs to is over.
    blog.come(visit("eve", 18, taken=90), visit("dan", 210))
    assert blog.run().success
    assert blog.told[-1]["stream/rows_too_late"] == 1
    shutil.rmtree(blog.table)
    blog.come(visit("last", 24 * 60))
    assert blog.run().success
    assert blog.told[-1]["stream/rows_too_late"] == 0
    ann, dan, eve = ("ann", 0, 0, 1, "inactivity"), ("dan", 200, 210, 2, "inactivity"), ("eve", 15, 44, 3, "inactivity")
    assert blog.rows() == [ann, dan, eve]
    assert (blog.account["missing"], blog.verdicts[BALANCED]) == (0, True)
