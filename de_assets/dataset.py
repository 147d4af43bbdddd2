"""What every dataset's declaration has in common, derived from its contract."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from pandera.pyspark import DataFrameModel

from de_checks.freshness.clock import duration
from de_resources.contract import Contract
from de_resources.held_back import HELD, LEFT_OUT
from de_resources.kafka.keepers import READS
from de_resources.run_queue.places import in_order
from de_resources.run_queue.pools import side_by_side


def pattern_tags(*patterns: str) -> dict[str, str]:
    """The tags `pattern/<name>` by which the catalogue finds what carries a pattern."""
    return {f"pattern/{name}": "" for name in patterns}


def dataset(
    model: type[DataFrameModel],
    *,
    patterns: Sequence[str] = (),
    partition: str | None = None,
    io_manager: str = "io_manager",
    pipeline: str | None = None,
    pool: str | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """Keyword arguments for `@dg.asset` and `dg.AssetOut`: key, documentation, owner, tags, metadata.

    `partition` names the column that carries the Dagster partition, `pipeline` one whose runs go one at a time and in the
    order of their partitions, `pool` one whose runs go side by side, up to its limit; further `metadata`
    configures the IO manager. The table itself enforces the rules of the contract; `constraints=False` leaves them to
    checks, for rows that shall be seen.
    """
    contract = Contract.of(model)
    layer, name = contract.name.split(".")
    return {
        "key": dg.AssetKey([layer, name]),
        "description": contract.description,
        "owners": [contract.owner],
        "group_name": layer,
        "kinds": {"pyspark", "deltalake"},
        "tags": {
            **pattern_tags(*patterns),
            **(in_order(pipeline) if pipeline else {}),
            **(side_by_side(pool) if pool else {}),
        },
        "io_manager_key": io_manager,
        "metadata": {
            "contract": contract.path,
            "dagster/table_name": contract.name,
            "dagster/column_schema": contract.table_schema(),
            "constraints": True,
            HELD: LEFT_OUT,
            **({"partition_expr": partition} if partition else {}),
            **({"late_for": duration(contract.late_for.total_seconds())} if contract.late_for else {}),
            **metadata,
        },
    }


def served(model: type[DataFrameModel], *, kind: str, patterns: Sequence[str], **metadata: Any) -> dict[str, Any]:
    """Keyword arguments for an asset of `kind` that writes to its system itself, without an IO manager."""
    declared = dataset(model, patterns=patterns, **metadata)
    del declared["io_manager_key"], declared["metadata"]["constraints"]  # theirs are those of their own system
    return {**declared, "kinds": {kind}}


def reads(topic: str, keeper: str) -> dict[str, str]:
    """Metadata of who reads a topic: who keeps its position there, in the words of `de_resources.kafka.keepers`."""
    return {f"{READS}{topic}": keeper}
