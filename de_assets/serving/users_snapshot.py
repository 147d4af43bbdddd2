"""The users of the newest day that has a snapshot, for who reads the database.

Grain: one user. Pattern: Proxy - each run fills a table of its own, as a role that cannot change it afterwards, and one
view is switched to it; the job `roll_back_view` takes it back.
"""

from datetime import UTC, datetime

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.conditions import gated
from de_assets.contracts.serving import ServedUsers
from de_assets.dataset import served
from de_assets.gold.users_snapshot import users_snapshot as snapshots
from de_resources.contract import Contract
from de_resources.errors import PermanentError
from de_resources.lineage.record import lineage_of_output
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.transaction import LoadInterrupted
from de_resources.postgres.versioned_view import ProxyView, ViewProxy
from de_resources.proxy.retention import RetentionPolicy
from de_resources.retries import RETRY_TRANSIENT, origin_of

VIEW = dg.AssetKey(["gold", "users_latest"])


class NoUsers(PermanentError):
    """A snapshot without a single user, after ones that had some."""

    def __init__(self) -> None:
        super().__init__(
            "The newest snapshot has no users. Nothing was switched, readers of `serving.users_snapshot` see the version "
            "before. Look at gold.users_snapshot, and materialise its newest day again."
        )


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **served(
        ServedUsers,
        kind="postgres",
        patterns=["proxy"],
        # One of them was valid when the newest day ended.
        row_lineage={"silver/users": "s.user_id = o.user_id"},
    ),
    ins={"users": dg.AssetIn(VIEW)},
    deps=[dg.AssetDep(snapshots, partition_mapping=dg.LastPartitionMapping())],
    # Nothing happens in the view itself: what it shows is followed and gated where it is written. Before the first day is over
    # there is neither.
    automation_condition=gated(reference=dg.AssetSelection.assets(VIEW), there=dg.AssetSelection.assets(VIEW)),
)
def users_snapshot(
    context: dg.AssetExecutionContext, users: DataFrame, database: PostgresDatabase
) -> dg.MaterializeResult[None]:
    """Write the newest day as a version, switch to it, and drop versions that nobody can go back to."""
    proxy = view_proxy(database)
    # Automatic retries find what the run completed; a person's re-execution is a version of its own.
    id_ = origin_of(context.run).replace("-", "")[:16]
    names = Contract.of(ServedUsers).column_names

    shown = users.select(*names)
    rows = (row.asDict() for row in shown.toLocalIterator())
    count = proxy.write_version(id_, rows, context.run.run_id)
    if not count and proxy.states():
        raise NoUsers
    state = proxy.publish(id_, now=datetime.now(UTC))
    try:
        dropped = proxy.retain(RetentionPolicy(), datetime.now(UTC))
    except LoadInterrupted as error:
        # Somebody reads an old version: the next run drops it.
        context.log.warning("%s", error)
        dropped = []
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": count,
            "proxy/version": id_,
            "proxy/state": state.number,
            "proxy/versions_dropped": len(dropped),
            **lineage_of_output(context, shown),
            **database.description(),
        }
    )


def view_proxy(database: PostgresDatabase) -> ViewProxy:
    """The view and its versions in this database."""
    return ViewProxy(database, ProxyView.of(Contract.of(ServedUsers)))
