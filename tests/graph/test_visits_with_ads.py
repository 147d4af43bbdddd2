"""Visits with the ads that were shown after them, run by run: an idle side, a death in the middle, a state that is gone."""

from __future__ import annotations

import json
import shutil
from collections import Counter
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

from de_assets.bronze import ads_stream, visits_stream
from de_assets.partitions import CALENDAR
from de_assets.resources import resources
from de_assets.silver.visits_with_ads import checks, visits_with_ads
from de_resources.delta.write.stream import CHECKPOINT
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("dynamic_joiner")

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
RECORDS = "value BINARY, partition INT, offset LONG, timestamp TIMESTAMP"
BRONZE = [dg.AssetSpec(["bronze", name]) for name in ("visits_stream", "ads_stream")]


def at(second: float) -> datetime:
    return CALENDAR.start + timedelta(seconds=second)


def visit(name: str, page: str | None, second: float) -> tuple[bytes, datetime]:
    value = {"visit_id": name, "user_id": "u", "page": page, "event_time": at(second).isoformat(), "context": {}}
    return json.dumps(value).encode(), at(second + 3)


def ad(name: str, page: str | None, second: float) -> tuple[bytes, datetime]:
    value = {"showing_id": name, "page": page, "shown_at": at(second).isoformat(), "ad": f"ad {name}"}
    return json.dumps(value).encode(), at(second + 3)


@dataclass
class Blog:
    """Two topics as bronze has them, and the runs that join them."""

    engine: SparkEngine
    root: Path
    instance: dg.DagsterInstance
    sent: int = 0
    told: list[Mapping[str, Any]] = field(default_factory=list)

    def come(self, visits: Sequence[tuple[bytes, datetime]], ads: Sequence[tuple[bytes, datetime]]) -> None:
        for name, records, parsed in (
            ("visits_stream", visits, visits_stream.understood_or_explained),
            ("ads_stream", ads, ads_stream.understood_or_explained),
        ):
            rows = [(value, 0, self.sent + n, taken) for n, (value, taken) in enumerate(records)]
            self.sent += len(records)
            frame = parsed(self.engine.spark_session.createDataFrame(rows, RECORDS).coalesce(1))
            # Understood by the engine, as bronze does it, and stored without it.
            write_deltalake(str(self.root / "bronze" / name), frame.toArrow(), mode="append")

    @property
    def resources(self) -> dict[str, Any]:
        settings = Settings.from_environment({"DE_HOME": str(self.root.parent), "LAKE_ROOT": str(self.root)})
        return resources(settings, self.engine)

    def run(self, judged: Sequence[dg.AssetChecksDefinition] = ()) -> dg.ExecuteInProcessResult:
        done = dg.materialize(
            [*BRONZE, visits_with_ads, *judged],
            instance=self.instance,
            resources=self.resources,
            run_config=QUIET,
            raise_on_error=False,
        )
        for event in done.get_asset_materialization_events():
            told = event.step_materialization_data.materialization.metadata
            self.told.append({name: value.value for name, value in told.items()})
        return done

    def rows(self) -> Counter[tuple[str, str | None, str | None]]:
        found = DeltaTable(str(self.table)).to_pyarrow_table(columns=["visit_id", "showing_id", "ad"]).to_pylist()
        return Counter(tuple(row.values()) for row in found)

    @property
    def table(self) -> Path:
        return self.root / "silver" / "visits_with_ads"


@pytest.fixture
def blog(engine: SparkEngine, one_shuffle_partition: None, tmp_path: Path) -> Iterator[Blog]:
    with silent_instance() as instance:
        yield Blog(engine, tmp_path / "lake", instance)


def test_visits_come_out_with_their_ads_or_alone_whatever_is_idle_killed_or_gone(blog: Blog) -> None:
    # Nobody has shown an ad yet. What nobody understands is no visit, and keeps nothing up.
    blog.come([visit("a", "p", 0), visit("b", "q", 0), visit("of nowhere", None, 0), (b"{", at(9))], [])
    assert blog.run().success
    assert blog.rows() == {}
    assert blog.told[0]["stream/state_rows"] == 4
    # An ad of before its visit is none of it; one announced twice is one; who dated this one is a day ahead.
    shown = [ad("x", "p", 120), ad("x", "p", 120), ad("y", "p", 121), ad("z", "q", -1), ad("no page", None, 5)]
    tomorrow = (ad("w", "q", 86_400)[0], at(9))
    blog.come([visit("c", "q", 36_000), visit("c", "q", 36_000)], [*shown, tomorrow])
    verdicts = blog.run(judged=checks).get_asset_check_evaluations()
    assert verdicts
    assert all(each.passed for each in verdicts)
    expected = {("a", "x", "ad x"): 1, ("b", None, None): 1}
    assert blog.rows() == expected
    told = blog.told[1]
    assert (told["contract/rows"], told["stream/rows_too_late"], told["stream/state_rows"]) == (2, 0, 2)
    assert told["stream/state_bytes"] > 0
    assert {name: each["version"] for name, each in told["delta/read"].items()} == {
        "bronze.visits_stream": 1,
        "bronze.ads_stream": 1,
    }
    graph = dg.Definitions([*BRONZE, visits_with_ads], resources=blog.resources)
    assert problems(blog.instance, graph) == {"silver/visits_with_ads": {}}

    # Who is killed after the table's commit has not written down that the batch is done, and does it again.
    notes = sorted((blog.table / CHECKPOINT / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    notes[-1].unlink()
    notes[-1].with_name(f".{notes[-1].name}.crc").unlink(missing_ok=True)
    assert blog.run().success
    assert blog.rows() == expected

    shutil.rmtree(blog.table / CHECKPOINT / "state")
    blog.come([visit("d", "p", 80_000)], [])
    (failure,) = blog.run().get_step_failure_events()
    error = failure.step_failure_data.error
    assert error is not None
    assert error.cause is not None
    assert "The state of the stream into `silver.visits_with_ads`" in error.cause.message
    assert blog.rows() == expected
