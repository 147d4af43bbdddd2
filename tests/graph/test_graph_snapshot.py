"""The resolved graph as data: no asset, partition, check, tag, owner or dependency changes unseen.

After a wanted change: `pytest tests/graph/test_graph_snapshot.py --update-snapshot`, then read the difference.
"""

import json
from pathlib import Path

import dagster as dg
import pytest

SNAPSHOT = Path(__file__).parent / "graph_snapshot.json"


def described(defs: dg.Definitions) -> dict[str, object]:
    graph = defs.resolve_asset_graph()
    assets = {
        spec.key.to_user_string(): {
            "deps": sorted(d.asset_key.to_user_string() for d in spec.deps),
            "partitions": _partitions(graph.get(spec.key).partitions_def),
            "backfill": _backfill(graph.get(spec.key).backfill_policy),
            "partition_expr": spec.metadata.get("partition_expr"),
            "contract": spec.metadata.get("contract"),
            "mode": spec.metadata.get("mode"),
            "owners": sorted(spec.owners),
            "group": spec.group_name,
            "tags": sorted(t for t in spec.tags if not t.startswith("dagster/")),
            "kinds": sorted(spec.kinds),
            "automation": spec.automation_condition.get_label() if spec.automation_condition else None,
        }
        for spec in defs.resolve_all_asset_specs()
    }
    checks = {
        f"{key.asset_key.to_user_string()}:{key.name}": {
            "blocking": graph.get(key).blocking,
            "partitioned": graph.get(key).partitions_def is not None,
        }
        for key in graph.asset_check_keys
    }
    repository = defs.get_repository_def()
    return {
        "assets": assets,
        "checks": checks,
        "sensors": sorted(s.name for s in repository.sensor_defs),
        "schedules": {s.name: str(s.cron_schedule) for s in repository.schedule_defs},
    }


def _partitions(partitions: dg.PartitionsDefinition | None) -> str | None:
    """The kind only: the calendar is data."""
    return type(partitions).__name__ if partitions else None


def _backfill(policy: dg.BackfillPolicy | None) -> str | None:
    return policy.policy_type.value if policy else None


def test_the_graph_is_the_one_that_was_reviewed(request: pytest.FixtureRequest) -> None:
    from de_assets.definitions import defs

    now = json.loads(json.dumps(described(defs), sort_keys=True))
    if request.config.getoption("--update-snapshot"):
        SNAPSHOT.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    assert now == json.loads(SNAPSHOT.read_text())


def test_every_code_location_loads() -> None:
    from de_assets.dashboards.definitions import defs as dashboards
    from de_assets.definitions import defs

    for location in (defs, dashboards):
        dg.Definitions.validate_loadable(location)


def test_every_dataset_is_documented_owned_and_partitioned_as_its_contract_says() -> None:
    from de_assets.definitions import defs
    from de_resources.contract import Contract

    for spec in defs.resolve_all_asset_specs():
        assert spec.description, spec.key
        assert spec.owners, spec.key
        if not spec.metadata.get("contract"):
            continue
        contract = Contract.load(spec.metadata["contract"])
        assert ".".join(spec.key.path) == contract.name
        assert all(c.description for c in contract.columns), spec.key
        expression = spec.metadata.get("partition_expr")
        # A row of a stateful table belongs to all partitions so far.
        sliced = spec.partitions_def is not None and not spec.metadata.get("stateful")
        assert (expression is not None) == sliced, spec.key
        assert expression is None or expression in contract.partitioned_by, spec.key


def test_a_backfill_is_one_run_unless_partitions_build_on_each_other() -> None:
    from de_assets.definitions import defs

    graph = defs.resolve_asset_graph()
    partitioned = [graph.get(key) for key in graph.materializable_asset_keys if graph.get(key).is_partitioned]
    runs_each = {node.key.to_user_string() for node in partitioned if node.backfill_policy is None}
    assert runs_each == {node.key.to_user_string() for node in partitioned if node.metadata.get("stateful")}
