"""Pipelines whose runs go in order: who requests their days, and who lets days go past one that failed.

Pattern: Single Runner. Automation requests all that one sensor watches in one run. Runs that may have to wait are
requested by a sensor of their own, so that nothing else waits with them.
"""

from functools import reduce
from operator import or_

import dagster as dg
from pydantic import Field

from de_assets.automation.pipelines import PIPELINES
from de_assets.dataset import pattern_tags
from de_resources.retries import RETRY_TRANSIENT
from de_resources.run_queue.passing import let_pass
from de_resources.run_queue.places import PIPELINE
from de_resources.sensor_interval import sensor_seconds

LET_PASS = "let_pass"  # noqa: S105 - a job's name


class LetPassConfig(dg.Config):
    """Which failed partition the others may go past, and why."""

    asset: str = Field(description="The asset key, such as `gold/sessions`.")
    partition: str = Field(
        description="The partition that failed, such as 2024-10-10; of a range the first that is missing."
    )
    reason: str = Field(description="Why. Kept in the partition's history; no personal data.")


def in_order() -> dg.AssetSelection:
    """The assets of all pipelines whose runs go in order."""
    return reduce(or_, (dg.AssetSelection.tag(PIPELINE, name) for name in PIPELINES))


cascade_in_order = dg.AutomationConditionSensorDefinition(
    "cascade_in_order",
    target=in_order(),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=sensor_seconds(),
    tags=pattern_tags("single_runner"),
    description="Requests what follows from new data in pipelines whose runs wait for their turn.",
)


@dg.op(out=dg.Out(dg.Nothing), description="Records that later partitions may go past one that failed, and why.")
def let_one_pass(context: dg.OpExecutionContext, config: LetPassConfig) -> dg.Output[None]:
    """One observation of each asset of the failed run. The queue looks once a second."""
    told = let_pass(context.instance, PIPELINES, config.asset, config.partition, config.reason)
    return dg.Output(None, metadata={"let_pass": told})


@dg.job(
    name=LET_PASS,
    tags=pattern_tags("single_runner"),
    op_retry_policy=RETRY_TRANSIENT,
    description="Lets the partitions of a pipeline go past one that failed, with the reason for it.",
)
def let_pass_job() -> None:
    """For the launchpad of the UI; `de let-pass` runs it as well."""
    let_one_pass()
