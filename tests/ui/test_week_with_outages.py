"""A week of which most lands while there is no daemon, and a worker dies while it is taken in: every partition is there in the
end, and was computed once.

A long proof (`make soak`): the cuts, and who dies, are drawn from the seed. Four parts of the week took seven minutes on two
quiet cores; nothing waits for time, only for what has to become true.
"""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from simulated_home import GOLD, START, STEP_SECONDS, expected, living_home, steps, visited, written
from web_ui import until

pytestmark = [pytest.mark.ui, pytest.mark.faults, pytest.mark.timeout(3600)]

DAYS = 7
# Three parts at once, the first of which was interrupted.
AFTER_OUTAGE_SECONDS = 1200.0
OF_DAYS = [GOLD, *(dg.AssetKey(["gold", name]) for name in ("sessions_pending", "sessions", "visitor_sketches_daily"))]
# Of the cube it is the staged table that is written when a day is computed.
DAILY = ["gold/visits_cube_daily/_staged", "gold/sessions_pending", "gold/sessions", "gold/visitor_sketches_daily"]
HOURLY = ["silver/visits", "silver/visits_enriched"]


def test_a_week_with_outages_of_daemon_and_workers_computes_each_partition_once(soak_seed: int, tmp_path: Path) -> None:
    """The daemon dies in the middle of the work; what lands meanwhile waits, and is taken in once.

    While it is taken in, a worker dies in the middle of a run over its partitions, and the daemon lives: nobody starts that
    run again by hand, and what it had written is not written twice.
    """
    random_ = random.Random(soak_seed)  # noqa: S311 - a world, not a secret
    pieces = steps(visited(random_, DAYS), random_, DAYS, overlap=False)
    logs, views = written(tmp_path, pieces), [view for piece in pieces for view in piece]
    hours = {f"{view.time:%Y-%m-%dT%H}:00:00.000000Z" for view in views}
    days = {f"{START + timedelta(days=day):%Y-%m-%d}" for day in range(DAYS)}

    with living_home(tmp_path / "home") as home:

        def there() -> dict[str, int]:
            return {asset.path[-1]: len(home.materialized(asset)) for asset in OF_DAYS}

        home.de("run", "--once", "--without-services", "--log", str(logs[0]))
        daemon = home.daemon()
        try:
            home.de("land", str(logs[1]))
            until(home.computes, STEP_SECONDS, daemon.output)
            daemon.kill()  # with the runs that are under way
            for log in logs[2:]:
                home.de("land", str(log))
            daemon = home.daemon()
            home.kills_a_worker(random_, daemon)
            home.takes_in(views, daemon, AFTER_OUTAGE_SECONDS)
            whole = dict.fromkeys(there(), DAYS)
            until(
                lambda: there() == whole and not home.works(),
                STEP_SECONDS,
                lambda: f"{there()}; {home.state(views)}; {daemon.output()}",
            )
        finally:
            daemon.kill()

        assert dg.DagsterRunStatus.SUCCESS in home.started_again(home.killed[-1])
        assert home.silver() == expected(views)
        for tables, column, partitions in ((HOURLY, "event_hour", hours), (DAILY, "event_date", days)):
            for table in tables:
                assert home.commits(table, column) == dict.fromkeys(partitions, 1), table
