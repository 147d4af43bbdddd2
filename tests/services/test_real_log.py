"""A piece of a real blog's access log beside a database and topics in which nothing has happened: that is a normal case.

Here the piece is landed as people land it, and the assets of its visits and of the quiet sources are run, on the shared engine.
The whole graph by `de run` on it is a long proof, and so are other pieces, by an engine of their own. The log is not part
of the project: skipped where it is absent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from platform_world import Lakehouse, Platform
from typer.testing import CliRunner

from de_assets.calendar import RecordedCalendar
from de_assets.cli.application import application
from de_assets.cli.terminal import console
from de_resources.local import LocalServices
from de_resources.spark import SparkEngine

PROJECT = Path(__file__).resolve().parents[2]
LOG = PROJECT.parent / "shared" / "data" / "blog_access.log"
# With the one line of the log that is none; of the second of its three hours, nothing else.
PIECE = slice(8_800, 9_000)
QUIET = b"[20/May/2015:12:"
LANDED = (
    "89 lines read: 88 visits in 3 hours, 1 dead letter(s). 3 hours are new or have grown, 1 are quiet.",
    "piece.log line 55",
)
FIGURES = (
    *LANDED,
    "89 records, 1 dead letter(s), 88 understood in 2 hourly partitions, 0 duplicate(s) removed",
    "2015-05-20 88",
    ", 0 failed; ",
)
DAY = date(2015, 5, 20)
HOURLY = ["bronze/visits", "bronze/visits_dead_letter", "silver/visits", "silver/visits_late"]
OF_NOTHING = ["bronze/users_changes", "silver/users", "bronze/visits_stream"]

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(not LOG.exists(), reason=f"the shared log ../shared/data/{LOG.name} is not on this machine"),
]


@pytest.fixture
def piece(tmp_path: Path) -> Path:
    """Of the log, without what happened in the hour that is to be quiet."""
    piece = tmp_path / "piece.log"
    lines = LOG.read_bytes().splitlines(keepends=True)[PIECE]
    piece.write_bytes(b"".join(line for line in lines if QUIET not in line or line.count(b'"') % 2))
    return piece


@pytest.fixture
def engine(platform: Platform) -> str:
    """The address of the shared engine."""
    with platform.at_home():
        return SparkEngine().resolved_url()


def de(environment: dict[str, str], *arguments: str) -> str:
    """What the command printed; its failure fails the test."""
    command = [str(Path(sys.executable).with_name("de")), *arguments]
    environment = {**os.environ, **environment, "COLUMNS": "240"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_piece_of_the_log_is_landed_read_and_counted_beside_sources_of_nothing(
    engine: str, quiet_services: LocalServices, piece: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 240)
    landed_by_command = CliRunner().invoke(application(), ["land", str(piece)])
    assert landed_by_command.exit_code == 0, landed_by_command.output
    for figure in LANDED:
        assert figure in landed_by_command.stdout
    recorded = RecordedCalendar.find(quiet_services.settings)
    assert recorded is not None
    lake = Lakehouse(quiet_services, tmp_path)
    lake.environment = {"DE_CALENDAR": str(recorded.calendar), "DE_SPARK": engine}
    hours = {"first": "2015-05-20-11:00", "last": "2015-05-20-13:00"}
    day = {"first": str(DAY), "last": str(DAY)}
    report = lake.run(
        {"assets": [*HOURLY, "bronze/legacy_visits"], "checks": True, **hours},
        {"assets": OF_NOTHING, "checks": True},
        {"assets": ["gold/daily_report"], "checks": True, **day},
    ).succeeded()
    assert [run["not_passed"] for run in report.runs] == [[], [], []]
    landed, valid = lake.per_key("bronze/visits", "landing_hour"), lake.per_key("silver/visits", "event_hour")
    assert landed == valid, "neither late nor twice"
    assert (len(valid), sum(valid.values()), len(lake.rows("bronze/visits_dead_letter"))) == (2, 88, 1)
    (told,) = lake.rows("gold/daily_report")
    assert (told["visits"], told["report_date"], told["figures_of"], told["basis"]) == (88, DAY, DAY, "all hours")
    for table in ("bronze/legacy_visits", *OF_NOTHING):
        assert lake.rows(table) == []


def test_a_piece_of_the_log_with_a_quiet_hour_becomes_its_known_figures(
    engine: str, all_quiet_services: LocalServices, piece: Path
) -> None:
    said = de(
        {"DE_HOME": str(all_quiet_services.settings.home), "DE_SPARK": engine},
        *("run", "--once", "--without-services", "--log", str(piece)),
    )
    for figure in FIGURES:
        assert figure in said
    for word in ("left out", "held back", "failed:"):
        assert word not in said
