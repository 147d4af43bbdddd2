"""How far one reader is behind all of the tables that it reads, as figures and as a sentence.

Pattern: Lag Detector. The reader has told which version it read of each (`delta/read`). Needs neither an engine nor a check, so
that a code location which has neither can ask as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from de_resources.delta.log.table_log import TableLog
from de_resources.delta.log.version_lag import VersionLag, version_lag
from de_resources.lag import Spread
from de_resources.moments import duration

READ = "delta/read"
"""Metadata of a materialisation: `{table: {"version": …, "id": …}}`; the id tells a table from one made again at its place."""


@dataclass(frozen=True)
class ReaderLag:
    """One reader's lags by the name of the table; `anew` are those that were made again since it read them."""

    lags: Mapping[str, VersionLag]
    anew: tuple[str, ...]
    has_started: bool

    @classmethod
    def measure(cls, logs: Mapping[str, TableLog | None], told: Mapping[str, Any] | None) -> ReaderLag:
        """From the tables' logs, None for one that does not exist, and the metadata of the reader's last materialisation.

        `told` None: it has never run. One that says nothing of a table has not read it.
        """
        read = (told or {}).get(READ) or {}
        lags, anew = {}, []
        for name, log in logs.items():
            if log is None:
                continue
            known = read.get(name)
            if known and known.get("id") != str(log.table.metadata().id):
                anew.append(name)
            lags[name] = version_lag(log, int(known["version"]) if known and name not in anew else None)
        return cls(lags, tuple(anew), told is not None)

    def figures(self, now: datetime) -> dict[str, Any]:
        """As metadata, over the tables: commits, bytes, and seconds since the first commit that it does not have."""
        return {
            "lag/started": self.has_started,
            **_spread("lag/commits", [lag.commits for lag in self.lags.values()], int),
            **_spread("lag/bytes", [lag.bytes for lag in self.lags.values()], int),
            **_spread("lag/seconds", [lag.age(now) for lag in self.lags.values()], float),
            "lag/tables": {name: lag.commits for name, lag in self.lags.items()},
        }

    def wrong(self, now: datetime, at_most: timedelta) -> str | None:
        """What is wrong with the reader, if anything."""
        figures = self.figures(now)
        if self.anew:
            names = ", ".join(f"`{name}`" for name in self.anew)
            return f"{names} was made again, and was not read since. {self.behind(now)}"
        beyond = [name for name, lag in self.lags.items() if lag.is_beyond]
        if beyond:
            return f"`{beyond[0]}` is shorter than what was read of it: it was put back to an older copy. Materialise it again."
        if not self.has_started:
            waits = any(lag.commits for lag in self.lags.values())
            return f"It has not started. {self.behind(now)}" if waits else None
        return self.behind(now) if figures["lag/seconds_max"] > at_most.total_seconds() else None

    def behind(self, now: datetime) -> str:
        """How far, in a sentence."""
        figures = self.figures(now)
        if not figures["lag/commits_max"]:
            return (
                "It has read all that its tables have."
                if self.has_started
                else "It has not started; there is nothing to read."
            )
        late = duration(figures["lag/seconds_max"])
        return f"{figures['lag/commits_max']:,} commits and {late} behind in its worst table."


def _spread(name: str, values: list[Any], number: type[int] | type[float]) -> dict[str, int | float]:
    found = Spread.of(values)
    return {f"{name}_max": number(found.max), f"{name}_p95": number(found.p95), f"{name}_p90": number(found.p90)}
