"""The runs that docs/second-day.md names, in one home: the first log, the same again, `--again`, `--follow`."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from de_assets.calendar import Calendar
from de_resources.settings import Settings

LINES = 200
HOURLY = {
    *("bronze/visits", "bronze/visits_dead_letter"),
    *("silver/visits", "silver/visits_late", "silver/visits_enriched", "staging/visits"),
}
"""What is computed hour by hour: a log of today has whole hours at every time of the day, and whole days at none."""


def test_a_home_is_filled_left_alone_computed_anew_and_followed(
    soak_seed: int, run_de: Callable[..., str], tmp_path: Path
) -> None:
    """Without services, so that it is the runs' own work that counts: what reads users or live visits is left out."""
    random_ = random.Random(soak_seed)  # noqa: S311 - a log, not a secret
    began = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=4)
    moments = sorted(began + timedelta(seconds=random_.randrange(3 * 3600)) for _ in range(LINES))
    log = tmp_path / "access.log"
    log.write_text("".join(_line(at, random_.randrange(9)) for at in moments))

    def run(*words: str) -> tuple[int, set[str]]:
        """The number of runs that were made, and the datasets that are called up to date."""
        told = run_de("run", "--once", "--without-services", "--log", str(log), *words)
        assert f"Visits: {LINES:,} records, 0 dead letter(s), {LINES:,} understood" in told
        (made,) = re.findall(r" (\d+) runs\.", told)
        return int(made), set(re.findall(r"│ (\w+/\w+) .*│ up to date ", told))

    first, kept = run()
    assert first > 5
    assert not kept
    again, kept = run()
    assert again < first
    assert kept >= HOURLY, "nothing changed, and nothing is computed"
    anew, kept = run("--again")
    assert (anew, kept) == (first, set()), "everything is computed"
    assert Calendar.load(_settings(tmp_path)) == Calendar(_hour(moments[0]), _hour(moments[-1]) + timedelta(hours=1))
    run("--follow")
    assert Calendar.load(_settings(tmp_path)) == Calendar(_hour(moments[0]), None), (
        "every hour that passes is one of it"
    )


def _line(at: datetime, page: int) -> str:
    time = f"{at:%d/%b/%Y:%H:%M:%S} +0000"
    return f'203.0.113.{page} - - [{time}] "GET /{page}/{at:%H%M%S} HTTP/1.1" 200 5 "-" "Mozilla/5.0 (X11) Firefox/128.0"\n'


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _settings(folder: Path) -> Settings:
    return Settings.from_environment({"DE_HOME": str(folder / "home")})
