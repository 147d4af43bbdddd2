"""The job `capture_anew`: give up a capture's slot, so that the capture begins again with a snapshot.

Part of Change Data Capture: what was lost with a slot, or not understood, is made up for by comparing keys. A snapshot is all
that there is: users that it does not have end, users that it has otherwise get a version, and nothing else changes.
"""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from de_assets.dataset import pattern_tags
from de_resources.capture import CaptureSource, drop
from de_resources.capture.source import UnknownCapture
from de_resources.postgres import PostgresDatabase
from de_resources.retries import RETRY_TRANSIENT

JOB = "capture_anew"


class CaptureConfig(dg.Config):
    """Which capture."""

    capture: str = Field(description="The capture, as `de capture status` names it.")


def capture_anew_job(captures: Sequence[CaptureSource]) -> dg.JobDefinition:
    """The job for these captures. Needs the resource `database`.

    A rerun begins another snapshot, which changes nothing downstream. Raises `UnknownCapture`.
    """

    @dg.op(out=dg.Out(dg.Nothing), description="Drops slot and publication; the running capture makes both again.")
    def give_up_slot(context: dg.OpExecutionContext, config: CaptureConfig, database: PostgresDatabase) -> None:
        source = UnknownCapture.unless_named(config.capture, captures)
        drop(database, source)
        context.log.info(
            "The capture `%s` begins again; the next run of what follows its topic reads the snapshot.", source.name
        )

    @dg.job(
        name=JOB,
        op_retry_policy=RETRY_TRANSIENT,
        tags=pattern_tags("change_data_capture"),
        description="Begins a capture again with a snapshot, which makes up for changes that were lost or not understood.",
    )
    def capture_anew() -> None:
        """One op."""
        give_up_slot()

    return capture_anew
