"""How far is an asset behind the tables that it was computed from?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_of_asset
from de_checks.freshness.clock import Clock, duration, utc_now
from de_checks.lag.past import result
from de_checks.subject import Subject
from de_resources.delta.log.version_lag import VersionLag, version_lag
from de_resources.delta.read_versions import READ
from de_resources.lag import Spread

Lags = Mapping[str, VersionLag]
"""By the name of the table that is read."""


def version_lag_check(
    asset: Subject,
    tables: Collection[dg.AssetSpec],
    *,
    at_most: timedelta = timedelta(days=1),
    now: Clock = utc_now,
) -> dg.AssetChecksDefinition:
    """A check that an asset without partitions has taken in what its tables got more than `at_most` ago.

    The position is the version that its last materialisation has read of each table (`delta/read`). What counts are commits
    that changed rows, not housekeeping. A table that was made again, or that the asset never read though it has rows, is
    told as such. A full reader loses nothing by being late: it warns.

    Reads Delta's logs. Needs the resource `lake`. Metadata, over the tables: `lag/commits_max`, `_p95`, `_p90`, the same of
    `lag/bytes` and `lag/seconds`, and `lag/started`.
    """

    def judge(run: CheckRun) -> dg.AssetCheckResult:
        last = run.instance.get_latest_materialization_event(run.asset.key)
        told = last.asset_materialization.metadata.get(READ) if last and last.asset_materialization else None
        read: Mapping[str, Any] = told.value if told is not None and isinstance(told.value, dict) else {}
        lags, anew = {}, []
        for spec in tables:
            table = run.lake.table(spec.key, spec.metadata)
            log = table.log()
            if log is None:
                continue
            known = read.get(table.name)
            if known and known.get("id") != str(log.table.metadata().id):
                anew.append(table.name)
            lags[table.name] = version_lag(log, int(known["version"]) if known and table.name not in anew else None)
        moment = now()
        figures = {
            "lag/started": bool(last),
            **_spread("lag/commits", [lag.commits for lag in lags.values()], int),
            **_spread("lag/bytes", [lag.bytes for lag in lags.values()], int),
            **_spread("lag/seconds", [lag.age(moment) for lag in lags.values()], float),
            "lag/tables": {name: lag.commits for name, lag in lags.items()},
        }
        wrong = _wrong(lags, anew, bool(last), figures, at_most)
        return result(wrong is None, dg.AssetCheckSeverity.WARN, wrong or _behind(figures), figures)

    return check_of_asset(
        asset,
        "keeps_up_with_its_tables",
        judge,
        description=f"What its tables got more than {duration(at_most.total_seconds())} ago is taken in.",
        patterns=["lag_detector"],
        resources=["lake"],
    )


def _wrong(
    lags: Lags, anew: Collection[str], has_started: bool, figures: Mapping[str, Any], at_most: timedelta
) -> str | None:
    waiting = [name for name, lag in lags.items() if lag.commits]
    if anew:
        return f"{', '.join(f'`{name}`' for name in anew)} was made again, and was not read since. {_behind(figures)}"
    beyond = [name for name, lag in lags.items() if lag.is_beyond]
    if beyond:
        return f"`{beyond[0]}` is shorter than what was read of it: it was put back to an older copy. Materialise it again."
    if not has_started:
        return f"It has not started. {_behind(figures)}" if waiting else None
    return _behind(figures) if figures["lag/seconds_max"] > at_most.total_seconds() else None


def _behind(figures: Mapping[str, Any]) -> str:
    if not figures["lag/commits_max"]:
        return (
            "It has read all that its tables have."
            if figures["lag/started"]
            else "It has not started; there is nothing to read."
        )
    return (
        f"{figures['lag/commits_max']:,} commits and {duration(figures['lag/seconds_max'])} behind in its worst table."
    )


def _spread(name: str, values: list[Any], number: type[int] | type[float]) -> dict[str, int | float]:
    found = Spread.of(values)
    return {f"{name}_max": number(found.max), f"{name}_p95": number(found.p95), f"{name}_p90": number(found.p90)}
