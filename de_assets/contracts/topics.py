"""Records of the topics that come from outside: what their producers promise to write, as JSON.

Times are texts here, as JSON has them. What else a record has is not read. A topic that the platform itself fills has the
contract of its dataset (`serving.visits_reduced`), a replica that of its source.
"""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel

_PERSONAL = {"personal": True}


def _texts(*names: str) -> list[T.StructField]:
    return [T.StructField(name, T.StringType()) for name in names]


_USER = T.StructType(_texts("ip", "login", "connected_since"))
_TECHNICAL = T.StructType(
    [
        *_texts("browser", "browser_version", "network_type", "device_type", "device_version"),
        T.StructField("is_bot", T.BooleanType()),
    ]
)
_CONTEXT = T.StructType(
    [*_texts("referral", "ad_id"), T.StructField("user", _USER), T.StructField("technical", _TECHNICAL)]
)
_IMAGE = T.MapType(T.StringType(), T.StringType())
_POSITION = T.StructType(
    [
        T.StructField("table", T.StringType()),
        T.StructField("commit_lsn", T.LongType()),
        T.StructField("sequence", T.IntegerType()),
        *_texts("commit_time", "event_time"),
        T.StructField("unchanged", T.ArrayType(T.StringType())),
    ]
)
_RELEASE = T.StructType(
    [
        T.StructField("feature", T.StringType(), nullable=False),
        T.StructField("version", T.StringType(), nullable=False),
        T.StructField("title", T.StringType()),
        T.StructField("rollout_percent", T.LongType()),
    ]
)


class VisitRecord(ContractModel):
    """A page view, as the blog's pages announce it. The lines that land in files have the same form.

    Grain: one announcement; a page view may be announced more than once.
    """

    visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the page view, given by its producer")
    event_time: T.StringType = pa.Field(nullable=False, description="When the page was viewed, by the producer's clock")
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor: registered or guest")
    keep_private: T.BooleanType = pa.Field(nullable=True, description="Whether the visitor asked not to be profiled")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")
    context: _CONTEXT = pa.Field(  # type: ignore[valid-type]
        nullable=True, description="Where the visitor came from, and with what", metadata=_PERSONAL
    )

    class Config:
        """Optional fields may come and stay away."""

        name = "sources.visits_topic"
        metadata = {"owner": "team:web", "compatibility": "full_transitive"}


class AdRecord(ContractModel):
    """An advertisement that came up on a page, as the ad server announces it.

    Grain: one announcement; a showing may be announced more than once.
    """

    showing_id: T.StringType = pa.Field(nullable=False, description="Identity of the showing, given by the ad server")
    shown_at: T.StringType = pa.Field(nullable=False, description="When it came up, by the ad server's clock")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")
    ad: T.StringType = pa.Field(nullable=False, description="The advertisement that was shown")

    class Config:
        """Optional fields may come and stay away."""

        name = "sources.ads_topic"
        metadata = {"owner": "team:web", "compatibility": "full_transitive"}


class UserChangeRecord(ContractModel):
    """A change of the table of users, in the envelope of the capture.

    Grain: one change of one row; a record without a value (a tombstone) follows a deletion.
    """

    op: T.StringType = pa.Field(nullable=False, description="r, c, u, d, or t: all rows before are gone")
    before: _IMAGE = pa.Field(nullable=True, description="The row before", metadata=_PERSONAL)  # type: ignore[valid-type]
    after: _IMAGE = pa.Field(nullable=True, description="The row after", metadata=_PERSONAL)  # type: ignore[valid-type]
    source: _POSITION = pa.Field(nullable=False, description="Where in the database's log, and when")  # type: ignore[valid-type]

    class Config:
        """Written by the platform's own capture, kept for as long as the topic."""

        name = "sources.users_topic"
        metadata = {"owner": "team:accounts"}


class ReleaseRecord(ContractModel):
    """A release notification: an event in the JSON format of CloudEvents 1.0.

    Grain: one delivery of an event; `source` and `id` identify it.
    """

    specversion: T.StringType = pa.Field(nullable=False, description="Version of the envelope")
    id: T.StringType = pa.Field(nullable=False, description="Identity of the event within its source")
    source: T.StringType = pa.Field(nullable=False, description="Who announced it")
    type: T.StringType = pa.Field(nullable=False, description="Kind of event")
    time: T.StringType = pa.Field(nullable=False, description="When the release happened: ISO 8601 with a time zone")
    dataschema: T.StringType = pa.Field(nullable=False, description="Shape and version of `data`")
    data: _RELEASE = pa.Field(nullable=False, description="What was released")  # type: ignore[valid-type]

    class Config:
        """What does not say so much is a dead letter."""

        name = "sources.features_topic"
        metadata = {"owner": "team:product"}
