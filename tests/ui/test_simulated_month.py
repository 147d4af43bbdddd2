"""Day after day under the real daemon, which dies twice: what lands is in gold without a person, and silver is its lines.

A long proof (`make soak`): a round is a month in steps of several days, drawn from the seed. Logs overlap, hours are quiet, one
line is none. A round of six steps took twenty minutes on a busy machine of four cores; nothing waits for time, only for what
has to become true.
"""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from simulated_home import GOLD, START, STEP_SECONDS, expected, living_home, steps, visited, written
from web_ui import until

pytestmark = [pytest.mark.ui, pytest.mark.faults, pytest.mark.timeout(3600)]

DAYS, KILLS = 30, 2


def test_a_month_of_logs_reaches_gold_without_a_person(soak_seed: int, tmp_path: Path) -> None:
    random_ = random.Random(soak_seed)  # noqa: S311 - a world, not a secret
    pieces = steps(visited(random_, DAYS), random_, DAYS, overlap=True)
    logs = written(tmp_path, pieces)
    broken = random_.randrange(1, len(logs))
    logs[broken].write_text("this is no line of a log\n" + logs[broken].read_text())
    deaths = set(random_.sample(range(1, len(logs)), KILLS))

    with living_home(tmp_path / "home") as home:
        home.de("run", "--once", "--without-services", "--log", str(logs[0]))
        daemon = home.daemon()
        try:
            for number, log in enumerate(logs[1:], 1):
                home.de("land", str(log))
                if number in deaths:
                    until(home.works, STEP_SECONDS, daemon.output)
                    daemon.kill()  # with the runs that are under way
                    daemon = home.daemon()
                home.takes_in([view for piece in pieces[: number + 1] for view in piece], daemon)
        finally:
            daemon.kill()

        assert home.silver() == expected([view for piece in pieces for view in piece])
        assert home.materialized(GOLD) == {f"{START + timedelta(days=day):%Y-%m-%d}" for day in range(DAYS)}
        letters = DeltaTable(str(home.table("bronze/visits_dead_letter"))).to_pyarrow_table()
        assert letters.num_rows == 1
