"""The assets `bronze/visits` and `bronze/visits_dead_letter`: all hours of the calendar, one run, as `de run` does it.

DE_CALENDAR, DE_HOME, LAKE_ROOT and DAGSTER_HOME say where; the engine is the Spark Connect server of that home.
"""

import dagster as dg

from benchmarks.workbench import QUIET
from de_assets.bronze.visits import landed_visits
from de_assets.partitions import hourly
from de_assets.ranges import range_tags
from de_assets.resources import resources
from de_resources.spark import close_connections


def main() -> None:
    """One run. What fails it ends this program with its traceback, which is all that the bench can tell of it."""
    keys = hourly.get_partition_keys()
    tags = range_tags(keys[0], keys[-1])
    try:
        with dg.DagsterInstance.get() as instance:
            dg.materialize([landed_visits], instance=instance, resources=resources(), tags=tags, run_config=QUIET)
    finally:
        close_connections()


if __name__ == "__main__":
    main()
