"""What a failed run still holds, while its partitions are repaired one by one, in any order."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from de_resources.run_queue.failures import RELEASED, Failures
from de_resources.run_queue.places import HAS_COME, TURN, Place, described

pytestmark = pytest.mark.pattern("single_runner")

LINE, OTHER = dg.AssetKey("line"), dg.AssetKey("other")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
BEGIN = DAYS.time_window_for_partition_key("2026-01-04").start.timestamp()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def days(*assets: str) -> Place:
    """The days 4 to 6, as a run over them has them in its tags."""
    first, last = "2026-01-04", "2026-01-06"
    return Place("line", assets or ("line",), first, last, BEGIN, described(DAYS, first, last))


def fails(instance: dg.DagsterInstance, place: Place) -> None:
    instance.report_run_failed(create_run_for_test(instance, tags={**place.tags(), TURN: HAS_COME}))


def computed(instance: dg.DagsterInstance, key: str, asset: dg.AssetKey = LINE) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=key))


def held(failures: Failures) -> list[str]:
    return [each.place.told() for each in failures.of("line")]


def test_a_range_is_made_good_day_by_day_and_holds_from_its_first_day_that_is_missing(
    instance: dg.DagsterInstance,
) -> None:
    fails(instance, days())
    failures = Failures(instance)
    assert held(failures) == ["2026-01-04 to 2026-01-06"]
    computed(instance, "2026-01-06")
    assert held(failures) == ["2026-01-04 to 2026-01-06"], "the last day alone makes nothing good"
    computed(instance, "2026-01-04")
    assert held(failures) == ["2026-01-05 to 2026-01-06"], "neither do the first and the last one"
    (left,) = failures.of("line")
    assert left.place.begin == BEGIN + 86_400, "so that the fifth day itself is held by nothing"
    assert held(Failures(instance)) == ["2026-01-05 to 2026-01-06"], "a new daemon knows the same"
    computed(instance, "2026-01-05")
    assert held(failures) == []


def test_a_day_is_made_good_when_all_assets_of_the_run_have_it(instance: dg.DagsterInstance) -> None:
    fails(instance, days("line", "other"))
    failures = Failures(instance)
    computed(instance, "2026-01-04")
    assert held(failures) == ["2026-01-04 to 2026-01-06"]
    computed(instance, "2026-01-04", OTHER)
    assert held(failures) == ["2026-01-05 to 2026-01-06"]


def test_partitions_that_are_no_times_are_repaired_in_their_order_too(instance: dg.DagsterInstance) -> None:
    letters = dg.StaticPartitionsDefinition(list("abcdef"))
    fails(instance, Place("line", ("line",), "c", "e", 2.0, described(letters, "c", "e")))
    failures = Failures(instance)
    computed(instance, "c")
    assert [(each.place.told(), each.place.begin) for each in failures.of("line")] == [("d to e", 3.0)]


def test_a_release_is_found_however_much_was_told_of_the_day_since(instance: dg.DagsterInstance) -> None:
    fails(instance, days())
    computed(instance, "2026-01-04")
    release = dg.AssetObservation(LINE, partition="2026-01-05", metadata={RELEASED: "its source is lost"})
    instance.report_runless_asset_event(release)
    for number in range(120):
        instance.report_runless_asset_event(
            dg.AssetObservation(LINE, partition="2026-01-05", metadata={"look": number})
        )
    assert held(Failures(instance)) == []


def test_what_fails_after_a_release_holds_anew(instance: dg.DagsterInstance) -> None:
    fails(instance, days())
    release = dg.AssetObservation(LINE, partition="2026-01-04", metadata={RELEASED: "its source is lost"})
    instance.report_runless_asset_event(release)
    failures = Failures(instance)
    assert held(failures) == []
    fails(instance, days())
    assert held(failures) == held(Failures(instance)) == ["2026-01-04 to 2026-01-06"]
