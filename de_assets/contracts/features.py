"""Features of the blog as they were released, and notifications that nobody could read."""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel
from de_resources.moments import CONCEIVABLE

OWNER = "team:product"


class Features(ContractModel):
    """Releases of features, as they were announced.

    Grain: one release notification. Not partitioned: merged by the event's identity.
    """

    event_source: T.StringType = pa.Field(nullable=False, description="Who announced the release")
    event_id: T.StringType = pa.Field(nullable=False, description="Identity of the event within its source")
    event_time: T.TimestampType = pa.Field(
        nullable=False, in_range=CONCEIVABLE, description="When the feature went live"
    )
    feature: T.StringType = pa.Field(nullable=False, description="Name of the feature")
    version: T.StringType = pa.Field(nullable=False, description="Version that went live")
    title: T.StringType = pa.Field(nullable=True, description="What readers see announced")
    rollout_percent: T.IntegerType = pa.Field(
        nullable=False, ge=0, le=100, description="Share of the visitors who get it, in percent"
    )

    class Config:
        """An event is the same event however often it is delivered."""

        name = "bronze.features"
        metadata = {"owner": OWNER, "key": ["event_source", "event_id"]}


class FeaturesDeadLetter(ContractModel):
    """Records of the topic that are no notification that this version understands, with payload, reason and place.

    Grain: one record of the topic. Not partitioned: merged by position.
    """

    payload: T.BinaryType = pa.Field(
        nullable=True, description="The bytes as they came; null: a record without a value", metadata={"personal": True}
    )
    reason: T.StringType = pa.Field(nullable=False, description="Why the record was not understood")
    field: T.StringType = pa.Field(nullable=True, description="The failing field, where one is to blame")
    topic_partition: T.IntegerType = pa.Field(nullable=False, ge=0, description="Partition of the topic")
    topic_offset: T.LongType = pa.Field(nullable=False, ge=0, description="Offset in that partition")
    append_time: T.TimestampType = pa.Field(nullable=False, description="When the broker appended the record")
    job_version: T.StringType = pa.Field(nullable=False, description="Version of the code that did not understand it")

    class Config:
        """The position identifies a record; its payload may be anything."""

        name = "bronze.features_dead_letter"
        metadata = {"owner": OWNER, "key": ["topic_partition", "topic_offset"]}
