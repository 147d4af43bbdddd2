"""The page views of a day as others load them: in the layout that was agreed upon, and from a date on in a richer one."""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel

OWNER = "team:legacy"
CUT_OVER = "2024-10-11"
"""The first day in the new layout. Who moves it accepts the contract, and materialises the days between again."""


class PageCounts(ContractModel):
    """Page views by day and page as CSV, one file per day named after it. Days before the cut-over have two columns only.

    Grain: one page that was viewed on the day. Partition: the day of the views, which is the file's name and no column of it.
    """

    page: T.StringType = pa.Field(nullable=False, description="Path or name of the page")
    views: T.LongType = pa.Field(nullable=False, gt=0, description="Number of page views")
    visitors: T.LongType = pa.Field(
        nullable=True, gt=0, description="Number of distinct visitors, not additive; null: a day of the old layout"
    )
    bot_views: T.LongType = pa.Field(
        nullable=True, ge=0, description="Page views by known robots; null: a day of the old layout"
    )
    event_date: T.DateType = pa.Field(nullable=False, description="Day of the views (UTC)")

    class Config:
        """A day of the wrong side breaks a rule, so that a moved cut-over is not forgotten."""

        name = "serving.page_counts"
        metadata = {
            "owner": OWNER,
            "key": ["event_date", "page"],
            "partitioned_by": ["event_date"],
            "consumers": ["team:legacy"],
            "rules": {
                "layout_is_that_of_its_side": f"(event_date >= DATE'{CUT_OVER}') = (visitors IS NOT NULL)",
                "new_columns_come_together": "(visitors IS NULL) = (bot_views IS NULL)",
                "visitors_within_views": "visitors IS NULL OR visitors <= views",
                "bots_within_views": "bot_views IS NULL OR bot_views <= views",
            },
        }
