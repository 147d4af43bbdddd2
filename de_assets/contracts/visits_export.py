"""The visits of a day as others get them: the files of the legacy export, and the table that is to replace them."""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel

OWNER = "team:legacy"
_PERSONAL = {"personal": True}
_METADATA = {"owner": OWNER, "key": ["visit_id", "event_time"], "partitioned_by": ["event_date"]}


class ExportedVisits(ContractModel):
    """What both ways of the export have: one row per page view."""

    visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the page view, given by its producer")
    event_time: T.TimestampType = pa.Field(nullable=False, description="When the page was viewed (UTC)")
    user_id: T.StringType = pa.Field(nullable=False, description="Pseudonymous visitor: registered or guest")
    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")
    referral: T.StringType = pa.Field(nullable=True, description="Where the visitor came from; null: directly")
    ip: T.StringType = pa.Field(nullable=True, description="Network address of the visitor", metadata=_PERSONAL)
    browser: T.StringType = pa.Field(nullable=True, description="Browser family")
    device_type: T.StringType = pa.Field(nullable=True, description="Kind of device")
    is_bot: T.BooleanType = pa.Field(nullable=True, description="Whether the visitor is a known robot")
    event_date: T.DateType = pa.Field(nullable=False, description="Day of the event (UTC)")


class VisitsExport(ExportedVisits):
    """Valid visits as a table by day, for readers of the legacy export: what its files say, with types.

    Grain: one page view of silver.visits. Partition: the day of the event.
    """

    class Config:
        """The day follows from the event time."""

        name = "serving.visits_export"
        metadata = {**_METADATA, "rules": {"day_is_that_of_event": "event_date = to_date(event_time)"}}


class VisitsCsv(ExportedVisits):
    """Valid visits as CSV, one file per day named after it, by RFC 4180; a manifest beside it says rows and digest.

    Grain: one page view of silver.visits. Partition: the day of the event, which is the file's name and no column of it.
    """

    class Config:
        """What the legacy system loads at night; no lineage sees who reads files."""

        name = "serving.visits_csv"
        metadata = {**_METADATA, "consumers": ["team:legacy"]}
