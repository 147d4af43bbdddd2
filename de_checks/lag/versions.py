"""How far is an asset behind the tables that it was computed from?"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.lag.past import result
from de_checks.subject import Subject
from de_resources.delta.log.reader_lag import ReaderLag


def version_lag_check(
    asset: Subject,
    tables: Collection[dg.AssetSpec],
    *,
    at_most: timedelta = timedelta(days=1),
    now: Clock = utc_now,
) -> dg.AssetChecksDefinition:
    """A check that an asset has taken in what the tables that it reads as a whole got more than `at_most` ago.

    The position is the version that its last materialisation has read of each table (`delta/read`), of whatever partition it
    was. What counts are commits that changed rows, not housekeeping. A table that was made again, or that the asset never read
    though it has rows, is told as such. A full reader loses nothing by being late: it warns.

    Reads Delta's logs. Needs the resource `lake`. Metadata, over the tables: `lag/commits_max`, `_p95`, `_p90`, the same of
    `lag/bytes` and `lag/seconds`, and `lag/started`.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        last = run.instance.get_latest_materialization_event(run.asset.key)
        event = last.asset_materialization if last else None
        told = {name: each.value for name, each in event.metadata.items()} if event else None
        sources = [run.lake.table(spec.key, spec.metadata) for spec in tables]
        lag, moment = ReaderLag.measure({table.name: table.log() for table in sources}, told), now()
        wrong = lag.wrong(moment, at_most)
        figures = lag.figures(moment)
        return result(wrong is None, dg.AssetCheckSeverity.WARN, wrong or lag.behind(moment), figures)

    return check_of_asset(
        asset,
        "keeps_up_with_its_tables",
        judge,
        description=f"What its tables got more than {duration(at_most.total_seconds())} ago is taken in.",
        patterns=["lag_detector"],
        resources=["lake"],
    )
