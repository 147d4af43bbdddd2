"""Devices: the provider's dump, and the current reference set with soft deletes."""

from datetime import timedelta

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel

OWNER = "team:reference-data"


class DeviceColumns(ContractModel):
    """What both datasets of devices have: one row per device type and version."""

    type: T.StringType = pa.Field(nullable=False, description="Kind of device, such as `iphone`")
    version: T.StringType = pa.Field(nullable=False, description="Version within the type")
    full_name: T.StringType = pa.Field(nullable=False, description="Name for people")


class BronzeDevices(DeviceColumns):
    """The provider's complete dump as of the last load.

    Grain: one device. Not partitioned: every load replaces the whole table; earlier loads are earlier versions.
    """

    class Config:
        """The dump has no change column."""

        name = "bronze.devices"
        # A dump a day; a quarter of one it may be late.
        metadata = {"owner": OWNER, "key": ["type", "version"], "freshness": {"silence": timedelta(hours=30)}}


class Devices(DeviceColumns):
    """Every device ever seen, with its present name, and whether the provider still lists it.

    Grain: one device. Not partitioned: merged by key.
    """

    is_deleted: T.BooleanType = pa.Field(nullable=False, description="Whether the provider's last dump lacked it")

    class Config:
        """Merged on the key; a device that vanished is marked and kept, because visits refer to it."""

        name = "silver.devices"
        metadata = {"owner": OWNER, "key": ["type", "version"]}
