"""The blog's graph against the simulator's record of every defect: what was injected is what was found, hour by hour."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from instances import silent_instance
from lineage_truth import problems
from openlineage_reader import require_told
from other_reader import multiset
from typer.testing import CliRunner

from de_assets.automation.openlineage import tell_runs
from de_assets.catalogue import load_locations
from de_assets.cli.application import application
from de_assets.cli.terminal import console
from de_assets.cli.trace import sources_of
from de_assets.definitions import defs
from de_assets.filling import UnitOutcome, fill, units
from de_assets.filling.sources import Availability
from de_assets.filling.units import external_assets
from de_assets.outside_rows import OutsideRows
from de_assets.partitions import CALENDAR, hourly
from de_assets.sources.landed_lines import line_numbers
from de_assets.sources.landing import MARKER, hour_folder
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.simulator import Defect, Irregularities, Truth, World, hours_between, land_devices, land_visits
from de_checks.keys import KEY_IS_UNIQUE
from de_checks.per_key import latest_materializations
from de_resources.lineage.recorded import Lineages
from de_resources.settings import Settings
from de_resources.spark import SparkEngine
from de_resources.tracing.trace import AT_MOST, Traced, TracedSource, trace

RATES = Irregularities(duplicates=0.05, late=0.07, malformed=0.03, missing=0.03, future=0.01, out_of_order=0.05)
ABSENT = {"postgres": "not started here", "kafka": "not started here", "geo": "not started here"}
HOURS = hours_between(CALENDAR.start, CALENDAR.start + timedelta(days=1))
ALL_CHECKS = {dg.AssetKey(["silver", "visits"]), dg.AssetKey(["gold", "referral_stats"])}
"""Assets whose checks are looked at here."""


def judged(location: dg.Definitions) -> dg.Definitions:
    """With the checks that hold back what lies behind them, but for that of keys, and those that are looked at here.

    All checks of all assets are executed by `de run` (`ui/conftest.py`), and take as long here as computing the assets.
    """

    def meant(spec: dg.AssetCheckSpec) -> bool:
        return spec.asset_key in ALL_CHECKS or (spec.blocking and spec.name != KEY_IS_UNIQUE)

    kept = [check for check in location.asset_checks or () if any(map(meant, check.check_specs))]
    return dg.Definitions(
        assets=location.assets, asset_checks=kept, resources=location.resources, executor=location.executor
    )


class Lakehouse:
    """A lake filled once for this module, the truth about it, and the instance that remembers the runs."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        self.settings, self.instance = settings, instance
        self.truth = Truth(settings.landing)
        self.outcomes: dict[str, UnitOutcome] = {}

    def rows(self, name: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = DeltaTable(f"{self.settings.lake_root}/{name}").to_pyarrow_table().to_pylist()
        return rows

    def per_hour(self, name: str, column: str) -> Counter[datetime]:
        return Counter(row[column] for row in self.rows(name))  # type: ignore[misc]

    def fill(self) -> None:
        locations = [judged(location) for location in load_locations()]
        sources = Availability(external_assets(locations), LandingZone(root=str(self.settings.landing)), ABSENT)
        for outcome in fill(units(locations), self.instance, sources.look, absent=ABSENT):
            self.outcomes |= {key.to_user_string(): outcome for key in outcome.unit.assets}


@pytest.fixture(scope="module")
def lakehouse(home: Path, engine: SparkEngine) -> Iterator[Lakehouse]:
    assert engine.spark_session is not None  # the runs below find this session
    settings = Settings.from_environment()
    world = World(seed=11, epoch=CALENDAR.start - timedelta(days=180), users=60, guests=200)
    land_visits(settings.landing, world, HOURS, per_hour=100, irregularities=RATES)
    land_devices(settings.landing, world, CALENDAR.start)
    with silent_instance() as instance:
        filled = Lakehouse(settings, instance)
        filled.fill()
        yield filled


def expected(lakehouse: Lakehouse, *kinds: str) -> Counter[datetime]:
    return Counter({h: n for h in HOURS if (n := sum(lakehouse.truth.hour(h).counts[k] for k in kinds))})


def late_of_the_log(lakehouse: Lakehouse) -> dict[object, datetime]:
    """The late visits that were injected, with the hour that they belong to, as far as the log has it."""
    injected = ((hour, row) for hour in HOURS for row in lakehouse.truth.hour(hour).rows(Defect.LATE))
    belongs = {row["visit_id"]: hour - timedelta(hours=int(str(row["detail"]))) for hour, row in injected}
    return {id_: hour for id_, hour in belongs.items() if hour >= HOURS[0]}


NOT_HERE = """
    bronze/users_changes silver/users gold/users_by_country gold/users_snapshot gold/users_latest serving/users_snapshot
    staging/users bronze/legacy_visits silver/legacy_visits bronze/visits_stream silver/visits_live gold/sessions_live
    silver/visits_live_dead_letter silver/visits_live_late silver/visits_live_state bronze/features serving/daily_traffic
    bronze/features_dead_letter serving/daily_traffic_by_country serving/weekly_visits serving/visits_reduced
    staging/visits_topic silver/visits_live_hours gold/traffic_live serving/partner_feed serving/profile_changes
    bronze/ads_stream silver/visits_with_ads gold/pages_per_visit silver/network_countries
    gold/sessions_stream
"""


def test_nothing_failed_and_what_was_left_out_says_why(lakehouse: Lakehouse) -> None:
    for outcome in lakehouse.outcomes.values():
        assert not outcome.failures, outcome
        assert not outcome.held_back, outcome
    left_out = {name: outcome.left_out for name, outcome in lakehouse.outcomes.items() if outcome.left_out}
    assert set(left_out) == set(NOT_HERE.split())
    assert all("not started here" in why for why in left_out.values())


@pytest.mark.pattern("fine_grained_tracker", "dataset_tracker")
def test_every_column_leads_to_the_declared_inputs(lakehouse: Lakehouse) -> None:
    found = {n: wrong for location in load_locations() for n, wrong in problems(lakehouse.instance, location).items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert set(found) == set(lakehouse.outcomes) - set(NOT_HERE.split())


@pytest.mark.pattern("dataset_tracker", "fine_grained_tracker")
def test_all_runs_are_told_by_valid_events_with_columns_partitions_and_checks(
    lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    assert not tell_runs(lakehouse.instance, load_locations()).away
    events = [json.loads(line) for file in tmp_path.rglob("events-*.jsonl") for line in file.read_text().splitlines()]
    known = Lineages.of(lakehouse.instance, load_locations()).datasets
    require_told(events, {name: known[name].lineage for name in set(lakehouse.outcomes) - set(NOT_HERE.split())})
    outputs = [each["outputFacets"] for e in events for each in e["outputs"] if each["name"] == "silver/visits"]
    hours = {key["identifier"] for each in outputs for key in each["subset"]["outputCondition"]["partitions"]}
    assert hours == {hourly.get_partition_key_for_timestamp(hour.timestamp()) for hour in HOURS}
    assert sum(each["outputStatistics"]["rowCount"] for each in outputs) == len(lakehouse.rows("silver/visits"))
    of_visits = [each.get("inputFacets", {}) for e in events for each in e["inputs"] if each["name"] == "silver/visits"]
    judged = [each["dataQualityAssertions"]["assertions"] for each in of_visits if "dataQualityAssertions" in each]
    assert {each["name"] for found in judged for each in found} >= {"rows_meet_contract", "key_is_unique"}


@pytest.mark.pattern("dead_letter", "incremental_loader")
def test_every_line_is_a_visit_or_a_dead_letter(lakehouse: Lakehouse) -> None:
    valid = lakehouse.per_hour("bronze/visits", "landing_hour")
    dead = lakehouse.per_hour("bronze/visits_dead_letter", "landing_hour")
    assert dead == expected(lakehouse, Defect.MALFORMED, Defect.MISSING)
    assert valid + dead == Counter({h: lakehouse.truth.hour(h).lines for h in HOURS})


@pytest.mark.pattern("dead_letter")
def test_a_dead_letter_names_its_field_and_keeps_its_payload(lakehouse: Lakehouse) -> None:
    missing = Counter(
        str(d["detail"]).split(":")[0] for h in HOURS for d in lakehouse.truth.hour(h).rows(Defect.MISSING)
    )
    letters = lakehouse.rows("bronze/visits_dead_letter")
    assert Counter(row["field"] for row in letters if row["field"]) == missing
    assert all(row["payload"] and row["reason"] for row in letters)


@pytest.mark.pattern("windowed_deduplicator", "late_data_detector")
def test_duplicates_and_late_visits_are_those_that_were_injected(lakehouse: Lakehouse) -> None:
    late = {row["visit_id"]: row["lateness_seconds"] for row in lakehouse.rows("silver/visits_late")}
    assert set(late) == {i for h in HOURS for k in (Defect.LATE, Defect.FUTURE) for i in lakehouse.truth.hour(h).ids(k)}
    future = {i for h in HOURS for i in lakehouse.truth.hour(h).ids(Defect.FUTURE)}
    assert {i for i, seconds in late.items() if seconds < 0} == future  # type: ignore[operator]
    valid = lakehouse.per_hour("silver/visits", "event_hour")
    on_time = {
        h: t.processable - t.counts[Defect.LATE] - t.counts[Defect.FUTURE]
        for h, t in ((h, lakehouse.truth.hour(h)) for h in HOURS)
    }
    assert valid == Counter(on_time)
    ids = [row["visit_id"] for row in lakehouse.rows("silver/visits")]
    assert len(ids) == len(set(ids))


@pytest.mark.pattern("filter_interceptor", "windowed_deduplicator")
def test_every_hour_tells_what_each_condition_removed(lakehouse: Lakehouse) -> None:
    """One run wrote all hours; each has the account of its own."""
    found = latest_materializations(lakehouse.instance, dg.AssetKey(["silver", "visits"]), hourly.get_partition_keys())
    injected = {"first_copy": Defect.DUPLICATE, "not_late": Defect.LATE, "not_in_the_future": Defect.FUTURE}
    for hour, materialized in zip(HOURS, found.values(), strict=True):
        truth, told = lakehouse.truth.hour(hour), materialized.metadata
        removed = told["filter/conditions"]
        assert {c: removed[c]["first"] for c in injected} == {c: truth.counts[kind] for c, kind in injected.items()}
        assert all(r["alone"] == r["first"] and not r["unknown"] for r in removed.values()), "injected into rows apart"
        assert told["filter/rows_in"] == truth.lines - truth.counts[Defect.MALFORMED] - truth.counts[Defect.MISSING]
        assert told["filter/rows_kept"] == told["dagster/partition_row_count"]


@pytest.mark.pattern("wrapper")
def test_the_landed_line_stays_beside_the_computed_columns(lakehouse: Lakehouse) -> None:
    landed = set((hour_folder(lakehouse.settings.landing, HOURS[7]) / "part-00000.json").read_bytes().split(b"\n"))
    rows = [row for row in lakehouse.rows("silver/visits") if row["event_hour"] == HOURS[7]]
    assert rows
    assert all(str(row["raw"]).encode() in landed for row in rows)


@pytest.mark.pattern("static_joiner", "dynamic_late_data_integrator")
def test_enrichment_keeps_every_visit_once_and_takes_late_ones_into_their_hours(lakehouse: Lakehouse) -> None:
    """Those of hours before the log have no hour here; those dated in the future get none."""
    enriched = lakehouse.rows("silver/visits_enriched")
    on_time = {row["visit_id"]: row["event_hour"] for row in lakehouse.rows("silver/visits")}
    late = late_of_the_log(lakehouse)
    assert late
    assert {row["visit_id"]: row["event_hour"] for row in enriched} == {**on_time, **late}
    assert len(enriched) == len(on_time) + len(late)
    assert any(row["device_name"] for row in enriched)
    assert not any(row["is_registered"] for row in enriched)  # there is no database here, hence no users


@pytest.mark.pattern("static_joiner")
def test_every_hour_tells_how_many_visits_found_no_user(lakehouse: Lakehouse) -> None:
    enriched = dg.AssetKey(["silver", "visits_enriched"])
    told = latest_materializations(lakehouse.instance, enriched, hourly.get_partition_keys())
    rows = lakehouse.per_hour("silver/visits_enriched", "event_hour")
    assert [each.metadata["join/unmatched"] for each in told.values()] == [rows[hour] for hour in HOURS]


@pytest.mark.pattern("distributed_aggregator", "aligned_fan_in")
def test_the_cube_reconciles_with_the_visits(lakehouse: Lakehouse) -> None:
    cube = lakehouse.rows("gold/visits_cube_daily")
    enriched = lakehouse.rows("silver/visits_enriched")
    total = [row for row in cube if row["grouping"] == 7]
    assert [row["visits"] for row in total] == [len(enriched)]
    assert total[0]["users"] == len({row["user_id"] for row in enriched})
    by_device = {row["device_type"]: row["users"] for row in cube if row["grouping"] == 5}
    seen: dict[object, set[object]] = {}
    for row in enriched:
        seen.setdefault(row["device_type"], set()).add(row["user_id"])
    assert by_device == {device: len(users) for device, users in seen.items()}


@pytest.mark.pattern("audit_write_audit_publish")
def test_the_commands_about_publications(lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cube's day was published by its audits: nothing waits, and there is nothing to go back to."""
    monkeypatch.setenv("DAGSTER_HOME", str(lakehouse.settings.dagster_home))  # the commands set it, too
    cube, day = "gold/visits_cube_daily", str(HOURS[0].date())
    before = lakehouse.rows(cube)

    def said(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(application(), arguments)
        return result.exit_code, " ".join((result.stdout + result.stderr).split())

    assert said("publish", "--list") == (0, "0 partition(s) or window(s) are held.")
    again, told = said("publish", cube, day, "--reason", "to be sure")
    assert (again, "readers see that already" in told, "0 bytes of data written" in told) == (0, True, True)
    refused, why = said("rollback", cube, day, "--reason", "to be sure")
    assert (refused, "no publication before the one that readers see" in why) == (1, True)
    assert said("rollback", cube, day)[0] == said("publish", "gold/sessions", day, "--reason", "r")[0] == 1
    assert lakehouse.rows(cube) == before


@pytest.mark.pattern("static_late_data_integrator")
def test_referrals_count_late_visits_on_the_day_of_their_event(lakehouse: Lakehouse) -> None:
    """Against one pass over the landed lines in plain Python, which knows no tables and no partitions."""
    seen: dict[tuple[date, str], set[str]] = defaultdict(set)
    before_time_began = set()
    dead = set(lakehouse.truth.ids(Defect.MALFORMED, HOURS)) | set(lakehouse.truth.ids(Defect.MISSING, HOURS))
    for hour in HOURS:
        for line in (hour_folder(lakehouse.settings.landing, hour) / "part-00000.json").read_bytes().splitlines():
            visit = understood(line)
            if visit is None or visit["visit_id"] in dead:
                continue
            moment = datetime.fromisoformat(visit["event_time"])
            if moment < CALENDAR.start:
                before_time_began.add(visit["visit_id"])
            elif moment < hour + timedelta(hours=1):  # later ones are dated in the future
                seen[moment.date(), visit["context"].get("referral") or "direct"].add(visit["visit_id"])
    assert before_time_began, "some landed in the first hours and belong to no day of the calendar"
    stats = lakehouse.rows("gold/referral_stats")
    found = {(row["event_date"], row["referral"]): row["visits"] for row in stats}
    expected_visits = {key: len(ids) for key, ids in seen.items()}
    assert found == expected_visits
    late = {i for i in lakehouse.truth.ids(Defect.LATE, HOURS) if i not in before_time_began}
    assert sum(row["late_visits"] for row in stats) == len(late)  # type: ignore[misc]
    assert all(row["is_approximate"] for row in stats), "time ends two days later, and the window has fifteen"


@pytest.mark.pattern("static_late_data_integrator", "dynamic_late_data_integrator")
def test_what_landed_is_in_the_referrals_or_was_injected_as_what_is_not(lakehouse: Lakehouse) -> None:
    """The account that the first run gave of the day, beside the simulator's record of every defect."""
    key = dg.AssetCheckKey(dg.AssetKey(["gold", "referral_stats"]), "landed_rows_are_accounted_for")
    (record,) = lakehouse.instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.evaluation is not None
    told = {name: value.value for name, value in record.evaluation.metadata.items()}
    truth = [lakehouse.truth.hour(hour) for hour in HOURS]
    injected = sum((each.counts for each in truth), Counter[str]())
    expected = {
        "landed": sum(each.lines for each in truth),
        "dead": injected[Defect.MALFORMED] + injected[Defect.MISSING],
        "duplicates": injected[Defect.DUPLICATE],
        "too old": injected[Defect.LATE] - len(late_of_the_log(lakehouse)),
        "ahead": injected[Defect.FUTURE],
        "waiting": 0,
        "unexplained": 0,
    }
    expected["counted"] = 2 * expected["landed"] - sum(expected.values())
    assert {name: told[name] for name in expected} == expected
    assert record.evaluation.passed


def understood(line: bytes) -> dict[str, Any] | None:
    """The visit of a line; None where it is no JSON object with its fields."""
    try:
        visit = json.loads(line)
        datetime.fromisoformat(visit["event_time"])
    except (ValueError, KeyError, TypeError):
        return None
    return visit if visit.get("visit_id") else None


@pytest.mark.pattern("unaligned_fan_in")
def test_the_report_of_each_day_is_of_all_its_hours(lakehouse: Lakehouse) -> None:
    of_day: dict[object, list[dict[str, object]]] = {}
    for row in lakehouse.rows("silver/visits"):
        of_day.setdefault(row["event_time"].date(), []).append(row)  # type: ignore[union-attr]
    found = {row["report_date"]: row for row in lakehouse.rows("gold/daily_report")}
    assert {day: (row["visits"], row["users"], row["pages"], row["figures_of"]) for day, row in found.items()} == {
        day: (len(rows), len({row["user_id"] for row in rows}), len({row["page"] for row in rows}), day)
        for day, rows in of_day.items()
    }
    hours = Counter(hour.date() for hour in HOURS)
    assert {(row["completeness"], row["is_approximate"], row["missing_hours"]) for row in found.values()} == {
        (1.0, False, "")
    }
    assert {day: row["hours_there"] for day, row in found.items()} == hours


@pytest.mark.pattern("stateful_merger")
def test_the_activity_of_users_adds_up_over_the_days(lakehouse: Lakehouse) -> None:
    times: dict[object, list[datetime]] = {}
    for row in lakehouse.rows("silver/visits_enriched"):
        times.setdefault(row["user_id"], []).append(row["event_time"])  # type: ignore[arg-type]
    found = {row.pop("user_id"): row for row in lakehouse.rows("gold/user_activity")}
    assert found == {
        user: {
            "first_seen": min(moments),
            "last_seen": max(moments),
            "visits": len(moments),
            "days": len({moment.date() for moment in moments}),
        }
        for user, moments in times.items()
    }


@pytest.mark.pattern("incremental_sessionizer")
def test_sessions_hold_every_visit_once_and_respect_the_gap(lakehouse: Lakehouse) -> None:
    """Those that are over, and those that may go on after the last day."""
    times: dict[object, list[datetime]] = {}
    for row in lakehouse.rows("silver/visits_enriched"):
        times.setdefault(row["user_id"], []).append(row["event_time"])  # type: ignore[arg-type]
    expected_sessions = Counter()
    for user, moments in times.items():
        ordered = sorted(moments)
        breaks = sum(b - a >= timedelta(minutes=30) for a, b in pairwise(ordered))
        expected_sessions[user] = breaks + 1
    pending = lakehouse.rows("gold/sessions_pending")
    assert {row["event_date"] for row in pending} == {HOURS[-1].date()}
    found = [*lakehouse.rows("gold/sessions"), *pending]
    assert Counter(row["user_id"] for row in found) == expected_sessions
    assert len({row["session_id"] for row in found}) == len(found)
    assert sum(row["visits"] for row in found) == sum(map(len, times.values()))  # type: ignore[misc]


def _dump(folder: Path, text: str) -> None:
    """Land a dump as a provider whose mark does not say what it stands for."""
    (folder / "devices.json").write_text(text)
    (folder / MARKER).write_text("")


@pytest.mark.pattern("full_loader", "merger")
def test_devices_that_vanish_from_the_dump_are_marked_and_return(lakehouse: Lakehouse) -> None:
    folder = lakehouse.settings.landing / "devices"
    whole = (folder / "devices.json").read_text().splitlines(keepends=True)
    try:
        _dump(folder, "".join(whole[1:]))
        assert _run(lakehouse, "bronze/devices", "silver/devices").success
        assert [row["is_deleted"] for row in lakehouse.rows("silver/devices")].count(True) == 1
    finally:
        _dump(folder, "".join(whole))
    assert _run(lakehouse, "bronze/devices", "silver/devices").success
    assert not any(row["is_deleted"] for row in lakehouse.rows("silver/devices"))


@pytest.mark.pattern("readiness_marker")
def test_an_hour_without_its_marker_is_not_read(lakehouse: Lakehouse) -> None:
    marker = hour_folder(lakehouse.settings.landing, HOURS[3]) / MARKER
    marker.unlink()
    try:
        before = multiset(lakehouse.rows("bronze/visits"))
        result = _run(lakehouse, "bronze/visits", "bronze/visits_dead_letter", partition=hourly.get_partition_keys()[3])
        assert not result.success
        assert "`_SUCCESS`" in str(result.get_step_failure_events()[0].step_failure_data.error)
        assert multiset(lakehouse.rows("bronze/visits")) == before
    finally:
        marker.touch()


def _run(lakehouse: Lakehouse, *assets: str, partition: str | None = None) -> dg.ExecuteInProcessResult:
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=lakehouse.instance,
        asset_selection=[dg.AssetKey(a.split("/")) for a in assets],
        partition_key=partition,
        raise_on_error=False,
    )


@pytest.mark.pattern("fine_grained_tracker")
class TestTrace:
    """The longest session, traced to its landed lines, beside a plain search through tables and files."""

    @pytest.fixture(scope="class")
    def traces(self, lakehouse: Lakehouse, engine: SparkEngine) -> dict[str, Traced]:
        sources = _sources(lakehouse, engine)
        longest = sorted(lakehouse.rows("gold/sessions"), key=lambda row: (row["visits"], row["session_id"]))[-1:]
        ids = [str(row["session_id"]) for row in longest]
        return {i: trace(engine.spark_session, sources.__getitem__, "gold/sessions", {"session_id": i}) for i in ids}

    def test_it_finds_the_visits_of_the_session_and_no_other(
        self, lakehouse: Lakehouse, traces: dict[str, Traced]
    ) -> None:
        sessions = {str(row["session_id"]): row for row in lakehouse.rows("gold/sessions")}
        for id_, found in traces.items():
            expected = _visits_of(sessions[id_], lakehouse.rows("silver/visits_enriched"))
            enriched = _input(found, "silver/visits_enriched")
            assert {row.values["visit_id"] for row in enriched.rows} == expected
            assert enriched.total == sessions[id_]["visits"] == len(expected)
            assert landed_as(enriched) == expected

    def test_it_names_the_file_and_line_that_hold_the_visit(
        self, lakehouse: Lakehouse, traces: dict[str, Traced]
    ) -> None:
        landing = lakehouse.settings.landing
        for found in traces.values():
            valid = _input(_input(found, "silver/visits_enriched"), "silver/visits")
            landed = _input(valid, "bronze/visits")
            assert landed.rows
            for row in landed.rows:
                file = landing / row.values["source_file"]
                lines = file.read_bytes().split(b"\n")
                numbers = line_numbers(file, row.values["raw"])
                assert numbers
                assert {json.loads(lines[number - 1])["visit_id"] for number in numbers} == {row.values["visit_id"]}
                assert row.shown["raw"] != row.values["raw"], "the line may hold personal values"

    def test_it_names_the_run_of_each_row(self, lakehouse: Lakehouse, traces: dict[str, Traced]) -> None:
        for found in traces.values():
            for traced in (found, _input(found, "silver/visits_enriched")):
                key = dg.AssetKey(traced.dataset.split("/"))
                known = {record.run_id for record in lakehouse.instance.fetch_materializations(key, limit=100).records}
                for row in traced.rows:
                    assert len(row.makers) == 1
                    assert row.makers[0].run in known

    def test_a_row_of_the_cube_leads_to_the_visits_that_it_counts(
        self, lakehouse: Lakehouse, engine: SparkEngine
    ) -> None:
        """A row of the finest grouping, and one of the total, whose visits are counted and shown in part.

        The first one counts a visit that came late, and is followed to what landed. The groupings between them have the
        same condition (unit/tracing/test_row_lineage).
        """
        dimensions = ("country", "device_type", "referral")
        cube = sorted(
            lakehouse.rows("gold/visits_cube_daily"), key=lambda row: (row["grouping"], row["visits"], str(row))
        )
        smallest = {row["grouping"]: row for row in reversed(cube)}
        assert set(smallest) == set(range(8))
        visits, late = lakehouse.rows("silver/visits_enriched"), late_of_the_log(lakehouse)
        named = [visit for visit in visits if visit["visit_id"] in late and visit["device_name"]]
        counted = {tuple(visit[name] for name in dimensions) for visit in named}
        smallest[0] = next(row for row in cube if not row["grouping"] and tuple(row[n] for n in dimensions) in counted)
        sources = _sources(lakehouse, engine)
        short = sources | {name: TracedSource(name) for name in ("silver/devices", "silver/visits_late")}
        for grouping in (0, 7):
            row = smallest[grouping]
            kept = [name for bit, name in zip((4, 2, 1), dimensions, strict=True) if not grouping & bit]
            expected = {
                visit["visit_id"]
                for visit in visits
                if visit["event_time"].date() == row["event_date"] and all(visit[name] == row[name] for name in kept)
            }
            key = {
                name: None if row[name] is None else str(row[name]) for name in ("event_date", "grouping", *dimensions)
            }
            known = sources if grouping == 0 else short
            found = trace(engine.spark_session, known.__getitem__, "gold/visits_cube_daily", key)
            (enriched,) = found.inputs
            assert (len(found.rows), enriched.total) == (1, row["visits"]), grouping
            traced = {each.values["visit_id"] for each in enriched.rows}
            assert traced == expected if row["visits"] <= AT_MOST else traced < expected
            if grouping == 0:
                assert landed_as(enriched) == expected
                came_late = {each.values["visit_id"] for each in _input(enriched, "silver/visits_late").rows}
                assert came_late == expected & set(late) != set()
                assert {each.values["type"] for each in _input(enriched, "silver/devices").rows} == {row["device_type"]}
            assert _input(_input(enriched, "silver/visits"), "bronze/visits").rows


@pytest.mark.pattern("schema_migrator")
def test_a_column_of_the_devices_becomes_another_one_while_everybody_goes_on(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command, as a person types it. The last test of this lake: it leaves the devices with both columns."""
    monkeypatch.setenv("DAGSTER_HOME", str(lakehouse.settings.dagster_home))  # the command sets it, too
    monkeypatch.setattr(console, "width", 240)
    before = multiset(lakehouse.rows("silver/devices"))
    which = ("silver/devices", "title_for_full_name")

    def said(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(application(), ["migrate", *arguments])
        # What Dagster says meanwhile goes to a file, but for a test's replacement of the terminal.
        return result.exit_code, " ".join((result.stderr if result.exit_code else result.stdout).split())

    def refused(*arguments: str, by: str) -> None:
        status, told = said(*arguments)
        assert (status, by in told) == (1, True), told

    def phase() -> str:
        status, told = said()
        (found,) = {each for each in ("not_started", "expanded", "migrated", "contracted") if each in told}
        assert (status, "title_for_full_name" in told) == (0, True)
        return found

    assert phase() == "not_started"
    refused(*which, by="Say all three")
    refused("silver/devices", "nothing", "expand", by="There are: title_for_full_name")
    refused(*which, "migrate", by="take the step `expand` first")
    assert said(*which, "sideways")[0] == 2
    assert said(*which, "rollback") == (0, "Nothing had begun.")

    assert said(*which, "expand") == (0, "Both sides are stored: title.")
    assert said(*which, "expand") == (0, "The table stores both sides already.")
    assert phase() == "expanded"
    assert said(*which, "migrate")[0] == 0
    assert phase() == "migrated"
    assert _run(lakehouse, "silver/devices").success
    rows = lakehouse.rows("silver/devices")
    assert rows
    assert all(row["title"] == row["full_name"] for row in rows)
    refused(*which, "contract", by="`the contract of silver/devices` reads full_name")
    asked = {"table": which[0], "migration": which[1], "step": "CONTRACT"}
    by_job = defs.resolve_job_def("migrate_table").execute_in_process(
        run_config={"ops": {"take_step": {"config": asked}}}, instance=lakehouse.instance, raise_on_error=False
    )
    (failure,) = by_job.get_step_failure_events()
    assert "`silver/visits_enriched` reads full_name" in str(failure.step_failure_data.error)
    assert phase() == "migrated"
    assert said(*which, "rollback")[0] == 0
    # The instance that the command asks has seen no run of these, other than the one that filled the lake.
    refused(*which, "rollback", by="`silver/visits_enriched` has not recorded what it reads")
    one = ("--cleared", "silver/visits_enriched")
    refused(*which, "rollback", *one, by="cannot be dropped: `staging/devices` has not recorded what it reads.")
    assert phase() == "expanded"
    rows = lakehouse.rows("silver/devices")
    assert multiset([{name: value for name, value in row.items() if name != "title"} for row in rows]) == before


def _sources(lakehouse: Lakehouse, engine: SparkEngine) -> dict[str, TracedSource]:
    locations = load_locations()
    outside = OutsideRows.of_graph(lakehouse.instance, locations)
    return sources_of(Lineages.of(lakehouse.instance, locations), engine, outside)


def landed_as(enriched: Traced) -> set[str]:
    """The visits that these were made of, on time or late."""
    return {
        row.values["visit_id"] for name in ("visits", "visits_late") for row in _input(enriched, f"silver/{name}").rows
    }


def _input(found: Traced, name: str) -> Traced:
    return next(each for each in found.inputs if each.dataset == name)


def _visits_of(session: dict[str, Any], visits: list[dict[str, Any]]) -> set[str]:
    start, end = session["started_at"], session["ended_at"]
    mine = [v for v in visits if v["user_id"] == session["user_id"]]
    return {v["visit_id"] for v in mine if start <= v["event_time"] <= end}
