"""Which partitions were computed from others: mappings, chains of partitions, and what has none."""

import dagster as dg
import pytest

from de_resources.downstream import downstream, stale_downstream

pytestmark = pytest.mark.pattern("dead_letter")

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-04-00:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")


@dg.asset(partitions_def=HOURS)
def landed() -> None: ...


@dg.asset(partitions_def=HOURS, deps=[landed])
def same_hour() -> None: ...


@dg.asset(
    partitions_def=HOURS,
    deps=[dg.AssetDep(landed, partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=0))],
)
def and_the_next() -> None: ...


@dg.asset(partitions_def=DAYS, deps=[same_hour, and_the_next])
def days() -> None: ...


BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


@dg.asset(partitions_def=DAYS, deps=[days, dg.AssetDep("totals", partition_mapping=BEFORE)])
def totals() -> None: ...


@dg.asset(deps=[days])
def report() -> None: ...


@dg.asset(partitions_def=DAYS, deps=[report])
def copies() -> None: ...


@dg.asset
def stranger() -> None: ...


GRAPH = dg.Definitions(
    assets=[stranger, copies, report, totals, days, and_the_next, same_hour, landed]
).resolve_asset_graph()
LAST = "2026-01-01-23:00"


def key(name: str) -> dg.AssetKey:
    return dg.AssetKey([name])


def test_mappings_decide_and_a_chain_of_partitions_is_followed_to_its_end() -> None:
    everything = {"2026-01-01", "2026-01-02", "2026-01-03"}
    found = downstream(GRAPH, key("landed"), [LAST])
    assert found == {
        key("same_hour"): {LAST},
        key("and_the_next"): {LAST, "2026-01-02-00:00"},
        key("days"): {"2026-01-01", "2026-01-02"},
        key("totals"): everything,
        key("report"): None,
        key("copies"): everything,
    }
    names = [asset.to_user_string() for asset in found]
    assert names.index("days") < names.index("report") < names.index("copies")


def test_only_what_was_computed_is_stale() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for name, partition in (("days", "2026-01-02"), ("days", "2026-01-03"), ("totals", "2026-01-03")):
            instance.report_runless_asset_event(dg.AssetMaterialization(key(name), partition=partition))
        found = stale_downstream(GRAPH, instance, key("landed"), [LAST])
        assert found == {key("days"): {"2026-01-02"}, key("totals"): {"2026-01-03"}}
        instance.report_runless_asset_event(dg.AssetMaterialization(key("report")))
        assert stale_downstream(GRAPH, instance, key("landed"), [LAST])[key("report")] is None
    assert downstream(GRAPH, key("copies"), ["2026-01-01"]) == {}
