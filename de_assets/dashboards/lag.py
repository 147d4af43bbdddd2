"""Is the dashboard behind the gold tables? Measured here, by this location's own means: the other one may be broken, or away.

Pattern: Lag Detector - the position is the version of each table that the newest page was drawn from.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from de_assets.dashboards.gold import GoldTables
from de_resources.delta.log.reader_lag import ReaderLag
from de_resources.retries import RETRY_TRANSIENT

AT_MOST = timedelta(days=1)


def lag_check(
    asset: dg.AssetsDefinition,
    tables: Sequence[dg.AssetKey],
    *,
    at_most: timedelta = AT_MOST,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> dg.AssetChecksDefinition:
    """A check that what the tables got more than `at_most` ago is in the newest page. Late, it warns: the next page has it."""

    @dg.asset_check(
        asset=asset,
        name="keeps_up_with_its_tables",
        description="What its tables got more than a day ago is on the page.",
        metadata={"pattern/lag_detector": True},
        retry_policy=RETRY_TRANSIENT,
    )
    def keeps_up_with_its_tables(
        context: dg.AssetCheckExecutionContext, gold_tables: GoldTables
    ) -> dg.AssetCheckResult:
        sources = [gold_tables.table(key) for key in tables]
        last = context.instance.get_latest_materialization_event(asset.key)
        event = last.asset_materialization if last else None
        told = {name: each.value for name, each in event.metadata.items()} if event else None
        lag, moment = ReaderLag.measure({table.name: table.log() for table in sources}, told), now()
        wrong, figures = lag.wrong(moment, at_most), lag.figures(moment)
        return dg.AssetCheckResult(
            passed=wrong is None,
            severity=dg.AssetCheckSeverity.WARN,
            description=wrong or lag.behind(moment),
            metadata={
                name: dg.MetadataValue.json(value) if isinstance(value, dict) else value
                for name, value in figures.items()
            },
        )

    return keeps_up_with_its_tables
