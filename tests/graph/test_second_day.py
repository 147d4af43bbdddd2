"""docs/second-day.md says of every check of the graph what it wants, names commands that exist, and its steps do what it says.

Executed here: the next log, and an hour that is bad. Backing up is in `tests/services/test_backup.py`, the UI by hand in
`tests/ui/test_serve.py`.
"""

import json
import re
import shutil
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import typer
from click.testing import Result
from instances import silent_instance
from typer.testing import CliRunner

from de_assets.calendar import Calendar
from de_assets.catalogue import load_locations
from de_assets.cli.application import application
from de_assets.definitions import defs
from de_assets.partitions import CALENDAR, hourly
from de_assets.sources.arrivals import ready_hours
from de_assets.sources.landing import MARKER, data_files, hour_folder
from de_resources.settings import Settings
from de_resources.spark import SparkEngine

PAGE = (Path(__file__).parents[2] / "docs" / "second-day.md").read_text()


def told_checks() -> list[str]:
    """The checks of the table, as often as they have a row."""
    (table,) = re.findall(r"^\| check \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)
    return [name for row in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_every_check_has_a_line() -> None:
    checks = {key.name for location in load_locations() for key in location.resolve_asset_graph().asset_check_keys}
    assert sorted(told_checks()) == sorted(checks), "each once"


NOT_SEEN_GREEN = {
    # Red is a bug of the platform: there is nothing that a person could do.
    "nothing_is_lost",
    "each_session_has_one_key",
}


def test_every_line_is_executed() -> None:
    """A test plants the cause, sees the check red, does what the line says, sees it green; `red_checks.py` holds it to that."""
    files = [file for file in Path(__file__).parents[1].rglob("test_*.py") if file != Path(__file__)]
    marks = re.findall(r"mark\.red_check\(([^)]+)\)", "".join(f.read_text() for f in [*files, Path(__file__)]))
    proved = {name for mark in marks for name in re.findall(r'"(\w+)"', mark)}
    assert {*told_checks()} - NOT_SEEN_GREEN == proved


def test_the_commands_exist() -> None:
    known = typer.main.get_command(application())
    commands = set(known.list_commands(None))  # type: ignore[attr-defined]
    assert {name for name in re.findall(r"\bde ([a-z]+)", PAGE) if name not in {"seed"}} <= commands


def test_make_hands_the_log_and_the_words_on() -> None:
    """What `de run` makes of them is proved in `tests/soak/test_second_day_runs.py`."""
    (log,) = re.findall(r"^make run LOG=(\S+)", PAGE, re.MULTILINE)
    words = re.findall(r"`(?:make run )?ARGS=(\S+)`", PAGE)
    assert set(words) == {"--again"}
    printed = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "run", f"LOG={log}", f"ARGS={words[0]} --follow"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.splitlines()[-1].endswith(f'de run --log "{log}" --again --follow')


MORNING = datetime.fromisoformat("2024-01-01T07:00:00+00:00")
HOUR = timedelta(hours=1)


def log_lines(*moments: datetime) -> str:
    return "".join(
        f'203.0.113.1 - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "GET /{at:%H%M} HTTP/1.1" 200 5 "-" "Lynx/2.8"\n'
        for at in moments
    )


def landed(home: Settings) -> dict[datetime, int]:
    """Lines by hour that is complete."""
    return {
        hour: sum(len(file.read_bytes().splitlines()) for file in data_files(hour_folder(home.landing, hour)))
        for hour in ready_hours(home.landing)
    }


@pytest.mark.pattern("readiness_marker")
def test_the_next_log_is_landed_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"^de (land /\S+ \S+)", PAGE, re.MULTILINE)
    monkeypatch.setenv("DE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DE_CALENDAR", raising=False)
    settings = Settings.from_environment()
    (tmp_path / "more").mkdir()
    older, newer = tmp_path / "access.log.1", tmp_path / "more" / "access.log"
    older.write_text(log_lines(MORNING))
    newer.write_text(log_lines(MORNING + 3 * HOUR))
    places = {"/var/log/nginx/access.log.1": str(older), "more/logs/": str(newer.parent)}

    def land(*words: str) -> Result:
        return CliRunner().invoke(application(), [places.get(word, word) for word in words])

    first = land(*command.split())
    assert first.exit_code == 0, first.output
    expected = {MORNING: 1, MORNING + HOUR: 0, MORNING + 2 * HOUR: 0, MORNING + 3 * HOUR: 1}
    assert landed(settings) == expected, "silence inside a log is complete and empty"
    assert Calendar.load(settings) == Calendar(MORNING, MORNING + 4 * HOUR)

    newer.write_text(log_lines(MORNING + 3 * HOUR, MORNING + 3 * HOUR + timedelta(minutes=1)))
    for _ in range(2):
        assert land(*command.split()).exit_code == 0
        expected[MORNING + 3 * HOUR] = 2
        assert landed(settings) == expected, "logs overlap: of a line that is landed already nothing is added"

    earlier = tmp_path / "access.log.2"
    earlier.write_text(log_lines(MORNING - HOUR))
    assert land("land", str(earlier)).exit_code == 0
    assert landed(settings) == {MORNING - HOUR: 1, **expected}, "order does not matter"
    assert Calendar.load(settings).start == MORNING - HOUR, "the calendar grows"

    for name, text in (("no.log", "nothing\nof a log\n"), ("far.log", log_lines(MORNING + timedelta(days=800)))):
        refused = tmp_path / name
        refused.write_text(text)
        assert land("land", str(refused)).exit_code != 0
    assert landed(settings) == {MORNING - HOUR: 1, **expected}, "what is refused leaves nothing behind"


def test_the_page_says_how_a_bad_hour_is_landed_anew() -> None:
    """`graph/test_range_gates.py` does so in a range with what follows, and the test below by itself."""
    assert "replace its folder by one with a new `_SUCCESS`, and materialise\n`bronze/visits` for it" in PAGE


@pytest.mark.pattern("dead_letter")
@pytest.mark.red_check("dead_letters_do_not_prevail")
def test_a_bad_hour_is_landed_anew_as_the_page_says(
    home: Path, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from de_assets.resources import resources

    monkeypatch.setenv("DE_HOME", str(tmp_path))
    settings, key = Settings.from_environment(), hourly.get_partition_key(CALENDAR.start)
    folder = hour_folder(settings.landing, CALENDAR.start)
    bronze = dg.AssetKey(["bronze", "visits"])
    judged = {"dead_letters_do_not_prevail", "rows_meet_contract"}
    assets = [a for a in defs.assets or [] if bronze in getattr(a, "keys", ())]
    checks = [
        c
        for c in defs.asset_checks or []
        if {s.name for s in c.check_specs} & judged and bronze in {s.asset_key for s in c.check_specs}
    ]
    job = dg.Definitions(
        assets, asset_checks=checks, resources=resources(settings, engine)
    ).resolve_implicit_global_asset_job_def()

    def land(broken: int) -> None:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        visits = [
            {"visit_id": f"v{n}", "event_time": CALENDAR.start.isoformat(), "user_id": "u", "page": "/"}
            for n in range(40)
        ]
        (folder / "visits.json").write_text(
            "".join(f"{json.dumps(v)}\n" for v in visits[broken:]) + "{broken\n" * broken
        )
        (folder / MARKER).touch()

    def run(instance: dg.DagsterInstance) -> tuple[bool, set[bool]]:
        done = job.execute_in_process(partition_key=key, instance=instance, raise_on_error=False)
        return done.success, {each.passed for each in done.get_asset_check_evaluations() if each.check_name in judged}

    with silent_instance() as instance:
        land(broken=35)
        success, verdicts = run(instance)
        assert not success, "it is red, and holds back what builds on it"
        assert False in verdicts
        land(broken=0)
        assert run(instance) == (True, {True})
