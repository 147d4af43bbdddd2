"""The job `roll_back_view`: let `serving.users_snapshot` show again what an earlier state showed. Pattern: Proxy.

Nothing is computed or copied. What readers see from then on is recorded as a materialisation of the asset.
"""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from de_assets.dataset import pattern_tags
from de_resources.delta.metadata import markdown_table
from de_resources.postgres import PostgresDatabase
from de_resources.retries import RETRY_TRANSIENT

JOB = "roll_back_view"
VIEW = dg.AssetKey(["serving", "users_snapshot"])


class RollBackViewConfig(dg.Config):
    """Which state to show."""

    state: int = Field(description="The state's number, as in the metadata `proxy/state`.")


@dg.op(out=dg.Out(dg.Nothing), description="Points the view to the version of an earlier state.")
def roll_back_view_to(
    context: dg.OpExecutionContext, config: RollBackViewConfig, database: PostgresDatabase
) -> dg.Output[None]:
    """A rerun switches and records nothing, and says so."""
    # The graph's own module loads the partitions.
    from de_assets.serving.users_snapshot import view_proxy

    proxy = view_proxy(database)
    state, changed = proxy.roll_back(config.state, now=datetime.now(UTC))
    metadata: dict[str, Any] = {"proxy/state": state.number, "rolled_back_to": config.state}
    if changed:
        context.log_event(dg.AssetMaterialization(VIEW, description=state.why, metadata=metadata))
    else:
        metadata["skipped"] = "readers see that already; nothing was switched"
    rows = [
        {
            "state": s.number,
            "since": s.at.isoformat(timespec="seconds"),
            "why": s.why,
            "version": next(iter(s.live.values())),
        }
        for s in proxy.states()[::-1]
    ]
    return dg.Output(
        None, metadata={**metadata, "states": dg.MetadataValue.md(markdown_table(list(rows[0]), rows, None))}
    )


@dg.job(
    op_retry_policy=RETRY_TRANSIENT,
    name=JOB,
    tags=pattern_tags("proxy"),
    description="Takes a served view back to an earlier state.",
)
def roll_back_view() -> None:
    """One op."""
    roll_back_view_to()
