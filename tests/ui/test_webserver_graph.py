"""What the webserver tells about the graph is the graph: locations, assets, partitions, checks; and only to this machine."""

import ipaddress
from pathlib import Path

import pytest
from processes import listening
from web_ui import WebUI

from de_assets.definitions import defs
from de_resources.delta.log import TableLog

pytestmark = pytest.mark.ui

MATERIALISED_PER_HOUR = ("bronze/visits", "bronze/visits_dead_letter", "silver/visits", "silver/visits_enriched")


def test_both_code_locations_load(web: WebUI) -> None:
    query = """{ workspaceOrError { ... on Workspace { locationEntries {
        name locationOrLoadError { __typename ... on PythonError { message } } } } } }"""
    entries = web.ask(query)["workspaceOrError"]["locationEntries"]
    loaded = {entry["name"]: entry["locationOrLoadError"]["__typename"] for entry in entries}
    assert loaded == {"de_assets": "RepositoryLocation", "dashboards": "RepositoryLocation"}, entries


def test_every_asset_is_there_with_what_people_ask_about_it(web: WebUI) -> None:
    query = """{ assetNodes { assetKey { path } description groupName kinds tags { key } dependencyKeys { path }
        owners { ... on TeamAssetOwner { team } ... on UserAssetOwner { email } } } }"""
    nodes = {"/".join(node["assetKey"]["path"]): node for node in web.ask(query)["assetNodes"]}
    graph = defs.resolve_asset_graph()
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}

    assert set(specs) < set(nodes), "all assets of the platform, and the dashboards"
    for name, spec in specs.items():
        node = nodes[name]
        assert node["description"] == spec.description
        assert len(node["description"]) > 20, name
        assert {f"team:{owner['team']}" for owner in node["owners"]} == set(spec.owners) != set(), name
        assert set(node["kinds"]) == spec.kinds != set(), name
        assert node["groupName"] == name.split("/")[0]
        assert {tag["key"] for tag in node["tags"]} >= {tag for tag in spec.tags if tag.startswith("pattern/")}
        assert {"/".join(k["path"]) for k in node["dependencyKeys"]} == {
            parent.to_user_string() for parent in graph.get(spec.key).parent_keys
        }


@pytest.mark.parametrize("name", MATERIALISED_PER_HOUR)
def test_every_hour_of_the_day_is_materialised(web: WebUI, name: str) -> None:
    node = web.asset(
        name,
        """partitionStats { numMaterialized numPartitions numFailed numMaterializing } partitionKeys
        assetPartitionStatuses { ... on TimePartitionStatuses { ranges { startKey endKey status } } }""",
    )
    assert node["partitionStats"] == {
        "numMaterialized": 24,
        "numPartitions": 24,
        "numFailed": 0,
        "numMaterializing": 0,
    }
    day = {"startKey": "2024-10-10-00:00", "endKey": "2024-10-10-23:00", "status": "MATERIALIZED"}
    assert node["assetPartitionStatuses"]["ranges"] == [day]


def test_the_day_of_gold_is_materialised(web: WebUI) -> None:
    node = web.asset(
        "gold/visits_cube_daily", "partitionStats { numMaterialized numPartitions numFailed } partitionKeys"
    )
    assert node["partitionStats"] == {"numMaterialized": 1, "numPartitions": 1, "numFailed": 0}
    assert node["partitionKeys"] == ["2024-10-10"]


def test_each_hour_tells_the_rows_that_its_table_holds(web: WebUI, lakehouse: dict[str, str]) -> None:
    hours = [f"2024-10-10-{hour:02}:00" for hour in range(24)]
    fields = """latestMaterializationByPartition(partitions: $partitions) {
        partition metadataEntries { label ... on IntMetadataEntry { intRepr } } }"""
    events = web.asset("silver/visits", fields, partitions=hours)["latestMaterializationByPartition"]
    told = {
        event["partition"]: int(entry["intRepr"])
        for event in events
        for entry in event["metadataEntries"]
        if entry["label"] == "dagster/partition_row_count"
    }
    log = TableLog.open(str(Path(lakehouse["DE_HOME"]) / "lake" / "silver" / "visits"))
    assert log is not None
    stored = {f"{hour:%Y-%m-%d-%H:%M}": rows for (hour,), rows in log.rows_by_partition().items()}
    assert {hour: rows for hour, rows in told.items() if rows} == stored
    assert set(told) == set(hours)
    assert sum(stored.values()) > 300


def test_every_hour_of_valid_visits_met_its_contract(web: WebUI) -> None:
    fields = """assetChecksOrError { ... on AssetChecks { checks { name blocking description
        partitionStatuses { ... on AssetCheckTimePartitionStatuses { ranges { startKey endKey status } } } } } }"""
    found = web.asset("silver/visits", fields)["assetChecksOrError"]["checks"]
    checks = {check["name"]: check for check in found}
    contract = checks["rows_meet_contract"]
    assert contract["blocking"]
    assert contract["description"]
    day = {"startKey": "2024-10-10-00:00", "endKey": "2024-10-10-23:00", "status": "SUCCEEDED"}
    assert contract["partitionStatuses"]["ranges"] == [day]


def test_a_check_of_one_hour_says_what_it_judged(web: WebUI) -> None:
    query = """query Runs($key: AssetKeyInput!, $partition: String) {
        assetCheckExecutions(assetKey: $key, checkName: "rows_meet_contract", partition: $partition, limit: 10) {
            status partition evaluation { success severity targetMaterialization { runId }
                metadataEntries { label ... on IntMetadataEntry { intRepr } } } } }"""
    key = {"path": ["silver", "visits"]}
    executions = web.ask(query, key=key, partition="2024-10-10-07:00")["assetCheckExecutions"]
    latest = executions[0]
    assert latest["partition"] == "2024-10-10-07:00"
    assert latest["status"] == "SUCCEEDED"
    assert latest["evaluation"]["success"]
    rows = {entry["label"]: entry.get("intRepr") for entry in latest["evaluation"]["metadataEntries"]}
    assert int(rows["rows"] or 0) > 0
    assert web.ask(query, key=key, partition="2031-01-01-00:00")["assetCheckExecutions"] == []


def test_nobody_else_can_reach_it(web: WebUI) -> None:
    addresses = listening(web.process.family())
    assert addresses
    assert [address for address in addresses if not ipaddress.ip_address(address).is_loopback] == []
