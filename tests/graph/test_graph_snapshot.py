"""The resolved graph as data: nothing that decides what runs when, or where it is stored, changes unseen.

After a wanted change: `pytest tests/graph/test_graph_snapshot.py --update-snapshot`, then read the difference.
"""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph
from dagster_shared.record import as_dict

SNAPSHOT = Path(__file__).parent / "graph_snapshot.json"


def described(defs: dg.Definitions) -> dict[str, object]:
    graph = defs.resolve_asset_graph()
    assets = {
        spec.key.to_user_string(): {
            "deps": sorted(d.asset_key.to_user_string() for d in spec.deps),
            "mappings": _mappings(graph, spec.key),
            "partitions": _partitions(graph.get(spec.key).partitions_def),
            "io_manager": _io_manager(defs, spec.key) if graph.get(spec.key).is_executable else None,
            "backfill": _backfill(graph.get(spec.key).backfill_policy),
            "partition_expr": spec.metadata.get("partition_expr"),
            "contract": spec.metadata.get("contract"),
            "mode": spec.metadata.get("mode"),
            "owners": sorted(spec.owners),
            "group": spec.group_name,
            "tags": sorted(t for t in spec.tags if not t.startswith("dagster/")),
            "kinds": sorted(spec.kinds),
            "automation": _shown(_condition(spec.automation_condition)) if spec.automation_condition else None,
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
    conditions = [spec.automation_condition for spec in defs.resolve_all_asset_specs() if spec.automation_condition]
    return {
        "assets": assets,
        "checks": checks,
        "conditions": {_shown(body): body for body in map(_condition, conditions)},
        "jobs": {job.name: _job(job) for job in repository.get_all_jobs() if not job.name.startswith("__")},
        "sensors": sorted(s.name for s in repository.sensor_defs),
        "schedules": {s.name: str(s.cron_schedule) for s in repository.schedule_defs},
    }


def _partitions(partitions: dg.PartitionsDefinition | None) -> str | None:
    """The kind only: the calendar is data."""
    return type(partitions).__name__ if partitions else None


def _mappings(graph: AssetGraph, asset: dg.AssetKey) -> dict[str, str]:
    """How partitions of the asset depend on those of each upstream, where somebody decided about it or both have some."""
    node = graph.get(asset)
    upstream = [key for key in node.parent_keys if node.is_partitioned or graph.get(key).is_partitioned]
    return {key.to_user_string(): repr(graph.get_partition_mapping(asset, key)) for key in upstream}


def _io_manager(defs: dg.Definitions, asset: dg.AssetKey) -> str | None:
    """What stores the asset; None for one that stores its data itself."""
    definition = defs.get_assets_def(asset)
    output = definition.node_def.output_def_named(definition.get_output_name_for_asset_key(asset))
    return None if output.dagster_type.is_nothing else definition.get_io_manager_key_for_asset_key(asset)


Body = list[Any]
"""A condition: what it is called, what it asks, and the conditions that it is made of."""


def _condition(condition: dg.AutomationCondition[Any]) -> Body:
    label = condition.get_label()
    given = {name: value for name, value in as_dict(condition).items() if name != "label" and not _is_made_of(value)}
    told = ", ".join(f"{name}={value!r}" for name, value in sorted(given.items()) if value is not None)
    return [
        f"{type(condition).__name__}({told})" + (f" [{label}]" if label else ""),
        *map(_condition, condition.children),
    ]


def _is_made_of(value: object) -> bool:
    if isinstance(value, dg.AutomationCondition):
        return True
    # Conditions and selections are tuples of a kind of their own.
    return type(value) in (list, tuple) and any(isinstance(part, dg.AutomationCondition) for part in value)  # type: ignore[attr-defined]


def _shown(body: Body) -> str:
    """Its label, and a digest of all of it."""
    label = re.search(r"\[(\w+)\]$", body[0])
    return f"{label[1] if label else 'condition'}@{sha256(json.dumps(body).encode()).hexdigest()[:8]}"


def _job(job: dg.JobDefinition) -> dict[str, object]:
    return {
        "nodes": sorted(job.graph.node_dict),
        "resources": sorted({key for node in job.all_node_defs for key in getattr(node, "required_resource_keys", ())}),
        "tags": sorted(tag for tag in job.tags if not tag.startswith("dagster/")),
    }


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
