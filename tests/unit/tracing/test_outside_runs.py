"""Which run a row outside of the lake is of: by the partition that holds it, whatever that begins with."""

from __future__ import annotations

from datetime import date

import dagster as dg
import pytest

from de_assets.contracts.serving import WeeklyVisits
from de_assets.dataset import dataset
from de_assets.outside_rows import OutsideRows
from de_resources.lineage.recorded import RecordedDataset
from de_resources.tracing.makers import OUTSIDE, Maker

pytestmark = pytest.mark.pattern("fine_grained_tracker")

NAME = "serving/weekly_visits"


def test_a_row_in_the_middle_of_a_week_is_of_the_newest_run_of_the_week() -> None:
    weeks = dg.WeeklyPartitionsDefinition("2024-10-07", day_offset=1, end_date="2024-10-28")

    @dg.asset(key=NAME.split("/"), partitions_def=weeks)
    def visits() -> None: ...

    metadata = dataset(WeeklyVisits, partition="event_date")["metadata"]
    with dg.DagsterInstance.ephemeral() as instance:
        runs = [
            dg.materialize([visits], instance=instance, partition_key=key).run_id
            for key in ("2024-10-07", "2024-10-14")
        ]
        found = OutsideRows(instance, {NAME: weeks}).of(
            NAME, RecordedDataset(metadata=metadata, kinds=frozenset({"postgres"}))
        )
        assert found is not None
        days = [date(2024, 10, 7), date(2024, 10, 10), date(2024, 10, 20), date(2024, 10, 22)]
        told = [found.makers({"event_date": day}) for day in days]
    assert told == [*[(Maker(OUTSIDE, run),) for run in (runs[0], runs[0], runs[1])], ()]


def test_of_a_table_without_partitions_nobody_has_recorded_it() -> None:
    metadata = dataset(WeeklyVisits)["metadata"]
    with dg.DagsterInstance.ephemeral() as instance:
        found = OutsideRows(instance, {NAME: None}).of(
            NAME, RecordedDataset(metadata=metadata, kinds=frozenset({"postgres"}))
        )
        assert found is not None
        assert found.makers({"event_date": date(2024, 10, 7)}) == ()
        assert OutsideRows(instance, {}).of("sources/users", RecordedDataset(kinds=frozenset({"postgres"}))) is None
