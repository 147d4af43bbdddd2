"""What the order costs: the time that a run has waited."""

from __future__ import annotations

import dagster as dg

from de_resources.run_queue.places import PIPELINE

SECONDS = "single_runner/waited_seconds"


def waited(context: dg.AssetExecutionContext) -> dict[str, float]:
    """Metadata: the seconds from the launch of the run to its start; nothing of a run that no queue had."""
    if PIPELINE not in context.run.tags:
        return {}
    record = context.instance.get_run_record_by_id(context.run.run_id)
    if record is None or record.start_time is None:
        return {}
    return {SECONDS: round(max(record.start_time - record.create_timestamp.timestamp(), 0.0), 1)}
