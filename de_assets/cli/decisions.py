"""What a person decides by a command: a job of one step, run here and recorded, so that the UI shows who decided what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from de_resources.settings import Settings

_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


def decide(job: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Run the job with the config of its step; what the step tells of its output.

    Raises the platform's own error where that is what the step failed with, and Dagster's otherwise.
    """
    import dagster as dg

    from de_assets.cli.run import dagster_instance
    from de_assets.definitions import defs
    from de_resources.errors import PlatformError

    definition = defs.resolve_job_def(job)
    (op,) = definition.graph.node_defs
    with dagster_instance(Settings.from_environment()) as instance:
        try:
            result = definition.execute_in_process(
                instance=instance, run_config={"ops": {op.name: {"config": config}}, "loggers": _QUIET}
            )
        except dg.DagsterError as error:
            cause = error.__cause__
            raise cause if isinstance(cause, PlatformError) else error from None
        (output,) = (event for event in result.events_for_node(op.name) if event.is_successful_output)
        return {name: value.value for name, value in output.step_output_data.metadata.items()}
