"""The assets `bronze/visits` and `bronze/visits_dead_letter`: all hours of the calendar, one run, as `de run` does it.

DE_CALENDAR, DE_HOME, LAKE_ROOT and DAGSTER_HOME say where; the engine is the Spark Connect server of that home.
"""

import sys

import dagster as dg

from benchmarks.workbench import QUIET
from de_assets.bronze.visits import landed_visits
from de_assets.partitions import hourly
from de_assets.ranges import range_tags
from de_assets.resources import resources
from de_resources.spark import close_connections


def main() -> int:
    """0 when the run succeeded."""
    keys = hourly.get_partition_keys()
    tags = range_tags(keys[0], keys[-1])
    with dg.DagsterInstance.get() as instance:
        result = dg.materialize(
            [landed_visits], instance=instance, resources=resources(), tags=tags, run_config=QUIET, raise_on_error=False
        )
    close_connections()
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main())
