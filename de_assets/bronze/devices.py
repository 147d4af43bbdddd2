"""The provider's devices: the whole dump, replaced as a whole.

Grain: one device. Pattern: Full Loader - readers see the previous dump or the new one, earlier dumps stay readable by
version, and a dump that is empty or moves too much is held back by its volume check.
"""

from datetime import timedelta

import dagster as dg
from pyspark.sql import DataFrame

from de_assets.automation.triggers.polling import LOOK, changed_folder, poll
from de_assets.contracts.devices import BronzeDevices
from de_assets.dataset import dataset
from de_assets.partitions import calendar_end
from de_assets.sources.landing import DEVICES, folder_look
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.systems import DEVICES_DROP
from de_checks.contract import contract_check
from de_checks.freshness import Commits, cadence_policy, flow_check
from de_checks.volume import volume_check
from de_resources.retries import RETRY_TRANSIENT
from de_resources.spark import SparkEngine


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **dataset(BronzeDevices, patterns=["full_loader", "data_overwrite"]),
    deps=[DEVICES_DROP],
    # Dagster's colours on the page: late after a day, missing after another quarter. The check below is what alarms.
    freshness_policy=cadence_policy(every=timedelta(days=1), grace=timedelta(hours=6)),
)
def devices(context: dg.AssetExecutionContext, landing: LandingZone, spark: SparkEngine) -> DataFrame:
    """Read the dump as it lies in the drop folder."""
    context.add_output_metadata({LOOK: folder_look(landing.path / DEVICES) or ""})
    return landing.devices(spark.spark_session).select("type", "version", "full_name")


checks = [
    contract_check(devices),
    # An empty, truncated or doubled dump must not become the reference: the previous one stays published downstream.
    # The set grows by one device in days, so that a dump of half or double its size is far outside.
    volume_check(devices, tolerance=(0.8, 1.25), blocking=True),
    # The dump has no date in its name: that it stopped is seen by what is committed, for a dump that is not new is not read.
    flow_check(devices, Commits(), name="rows_keep_coming", ends=calendar_end),
]
polls = [poll(devices, "0 4 * * *", changed_folder(devices, DEVICES), resources=["landing"], name="devices_reload")]
