"""A code location of one dataset: page counts of days on both sides of their cut-over, over a lake of the test."""

import dagster as dg

from de_assets.partitions import hourly
from de_assets.resources import resources
from de_assets.serving.page_counts import SOURCE, checks, page_counts

defs = dg.Definitions(
    [page_counts, dg.AssetSpec(SOURCE, partitions_def=hourly, metadata={"partition_expr": "event_hour"})],
    asset_checks=checks,
    resources=resources(),
    executor=dg.in_process_executor,
)
