"""The job `roll_back_view`: let a served view show again what an earlier state showed. Pattern: Proxy.

Nothing is computed or copied. What readers see from then on is recorded as a materialisation of the asset.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg
from pydantic import Field

from de_assets.dataset import pattern_tags
from de_resources.delta.metadata import markdown_table
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.versioned_view import ViewProxy
from de_resources.proxy.manifest import Manifest
from de_resources.retries import RETRY_TRANSIENT

JOB = "roll_back_view"


class RollBackViewConfig(dg.Config):
    """Which state to show."""

    state: int = Field(description="The state's number, as in the metadata `proxy/state`.")


def roll_back_view_job(view: dg.AssetKey, proxy: Callable[[PostgresDatabase], ViewProxy]) -> dg.JobDefinition:
    """The job for the asset `view`, whose versions `proxy` finds in the database. Needs the resource `database`.

    A rerun switches and records nothing, and says so. Raises what `ViewProxy.roll_back` raises.
    """

    @dg.op(out=dg.Out(dg.Nothing), description="Points the view to the version of an earlier state.")
    def roll_back_view_to(
        context: dg.OpExecutionContext, config: RollBackViewConfig, database: PostgresDatabase
    ) -> dg.Output[None]:
        versions = proxy(database)
        state, changed = versions.roll_back(config.state, now=datetime.now(UTC))
        metadata: dict[str, Any] = {"proxy/state": state.number, "rolled_back_to": config.state}
        if changed:
            context.log_event(dg.AssetMaterialization(view, description=state.why, metadata=metadata))
        else:
            metadata["skipped"] = "readers see that already; nothing was switched"
        return dg.Output(None, metadata={**metadata, "states": dg.MetadataValue.md(_table(versions.states()))})

    @dg.job(
        op_retry_policy=RETRY_TRANSIENT,
        name=JOB,
        tags=pattern_tags("proxy"),
        description="Takes a served view back to an earlier state.",
    )
    def roll_back_view() -> None:
        """One op."""
        roll_back_view_to()

    return roll_back_view


def _table(states: Sequence[Manifest]) -> str:
    rows = [
        {
            "state": state.number,
            "since": state.at.isoformat(timespec="seconds"),
            "why": state.why,
            "version": next(iter(state.live.values())),
        }
        for state in reversed(states)
    ]
    return markdown_table(list(rows[0]), rows, None)
