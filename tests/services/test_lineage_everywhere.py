"""Every asset of the graph after a real run over Spark Connect, broker and database: where its columns come from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
from first_lake import begin_anew
from lineage_truth import problems
from openlineage_reader import require_told
from platform_world import KEYS, Lakehouse, Platform

from de_assets.automation.openlineage import tell_runs
from de_assets.catalogue import load_locations
from de_assets.cli.trace import sources_of
from de_assets.dashboards.definitions import defs as dashboards
from de_assets.definitions import defs
from de_assets.outside_rows import OutsideRows
from de_assets.sources.landed_lines import line_numbers
from de_assets.sources.topics import VISITS, VISITS_REDUCED
from de_resources.delta.read_versions import READ
from de_resources.kafka import KafkaBroker
from de_resources.kafka.topic import Topic
from de_resources.lineage.recorded import Field, Lineages, RecordedDataset
from de_resources.spark import SparkEngine, close_connections
from de_resources.tracing.trace import Traced, trace

pytestmark = [pytest.mark.services, pytest.mark.pattern("fine_grained_tracker", "dataset_tracker")]


def runs() -> list[dict[str, object]]:
    """All steps of both locations, upstream first, once."""
    found: list[dict[str, object]] = []
    for location, module in ((defs, "de_assets.definitions"), (dashboards, "de_assets.dashboards.definitions")):
        graph, seen = location.resolve_asset_graph(), set[str]()
        for key in graph.toposorted_asset_keys:
            node = graph.get(key)
            names = sorted(each.to_user_string() for each in node.execution_set_asset_keys)
            if not node.is_materializable or names[0] in seen:
                continue
            seen.add(names[0])
            found.append({"assets": names, "graph": module, **_keys(node.partitions_def)})
    return found


def _keys(partitions: dg.PartitionsDefinition[str] | None) -> dict[str, str]:
    if partitions is None:
        return {}
    if isinstance(partitions, dg.HourlyPartitionsDefinition):
        return {"first": KEYS[0], "last": KEYS[-1]}
    return {"key": partitions.get_partition_keys()[0]}


@pytest.fixture(scope="module")
def filled(fed_platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """A lake in which every asset has run once."""
    fed_platform.up()
    with fed_platform.at_home():
        begin_anew()
    lakehouse = Lakehouse(fed_platform.services, tmp_path_factory.mktemp("everywhere"))
    lakehouse.environment["DE_CALENDAR"] = "2024-10-10T00/2024-10-11T00"
    lakehouse.environment["DE_STAGING_ROOT"] = str(lakehouse.folder / "staging")
    lakehouse.run(*runs()).succeeded()
    return lakehouse


def test_every_column_of_every_asset_leads_to_the_declared_inputs(filled: Lakehouse) -> None:
    with dg.DagsterInstance.from_config(str(filled.instance)) as instance:
        found = {name: wrong for location in (defs, dashboards) for name, wrong in problems(instance, location).items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    made = {key for location in (defs, dashboards) for key in location.resolve_asset_graph().materializable_asset_keys}
    assert set(found) == {key.to_user_string() for key in made}


COUNTED = "rows that are counted: it leads by what decides which rows there are"
NO_COLUMN = {
    "gold/users_snapshot.snapshot_date": "the day that the run is about",
    "gold/users_by_country.source_version": "the version of the table that was read",
    "gold/users_by_country.users": COUNTED,
    "gold/visits_cube_daily.grouping": "which columns are summed up",
    "gold/visits_cube_daily.visits": COUNTED,
    "gold/visitor_sketches_daily.grouping": "which columns are summed up",
    "gold/visits_cube_weekly.grouping": "which columns are summed up",
    "gold/visits_cube_weekly.visits": COUNTED,
    "gold/referral_stats.visits": COUNTED,
    "gold/referral_stats.late_visits": COUNTED,
    "gold/daily_report.report_date": "the day that the run is about",
    "gold/daily_report.visits": COUNTED,
    "gold/daily_report.figures_of": "the instance: whose figures are shown",
    "gold/daily_report.basis": "the instance: which hours are there",
    "gold/daily_report.completeness": "the instance: which hours are there",
    "gold/daily_report.is_approximate": "the instance: which hours are there",
    "gold/daily_report.hours_expected": "the calendar",
    "gold/daily_report.hours_there": "the instance: which hours are there",
    "gold/daily_report.missing_hours": "the instance: which hours are there",
    "gold/traffic_live.visits": COUNTED,
    "gold/pages_per_visit.announcements": COUNTED,
    "gold/sessions_live.visits": COUNTED,
    "gold/user_activity.visits": COUNTED,
    "gold/user_activity.days": COUNTED,
    "gold/users_latest.snapshot_date": "the day that the run of its table is about",
}
"""Columns of gold in which no column of a source is, and why."""


def test_every_column_of_gold_leads_to_a_source_and_its_owner(filled: Lakehouse) -> None:
    """By the recorded lineage alone, step by step; what has no column of a source leads there by the rows."""
    with dg.DagsterInstance.from_config(str(filled.instance)) as instance:
        known = Lineages.of(instance, [defs, dashboards]).datasets
    gold = {name: each for name, each in known.items() if name.startswith("gold/")}
    fields = {f"{name}.{column}": (name, column) for name, each in gold.items() for column in each.fields}
    assert len(gold) == len(
        [key for key in defs.resolve_asset_graph().materializable_asset_keys if key.path[0] == "gold"]
    )
    ends = {text: _sources(known, [field]) for text, field in fields.items()}
    assert {text for text, reached in ends.items() if not reached} == set(NO_COLUMN)
    for text in NO_COLUMN:
        lineage = known[fields[text][0]].lineage
        assert lineage is not None
        ends[text] = _sources(
            known, lineage.conditions | {each for found in lineage.columns.values() for each in found}
        )
    for text, reached in ends.items():
        assert reached, text
        assert all(known[name].owners for name in reached), f"{text}: {sorted(reached)}"


def _sources(known: Mapping[str, RecordedDataset], fields: Iterable[Field]) -> set[str]:
    """The systems outside in which a walk upstream from these columns ends."""
    ahead, seen, found = set(fields), set[Field](), set[str]()
    while ahead:
        seen |= ahead
        found |= {name for name, _ in ahead if known[name].lineage is None and not known[name].stored_by}
        lineages = [(known[name].lineage, column) for name, column in ahead]
        ahead = {each for lineage, column in lineages if lineage for each in lineage.columns.get(column, ())} - seen
    return found


@pytest.mark.pattern("lag_detector")
def test_every_measured_reader_tells_which_versions_it_has_read(filled: Lakehouse) -> None:
    untold = {}
    with dg.DagsterInstance.from_config(str(filled.instance)) as instance:
        for graph in (defs.resolve_asset_graph(), dashboards.resolve_asset_graph()):
            for check in graph.asset_check_keys:
                if check.name != "keeps_up_with_its_tables":
                    continue
                event = instance.get_latest_materialization_event(check.asset_key)
                told = event.asset_materialization.metadata.get(READ) if event and event.asset_materialization else None
                name = check.asset_key.to_user_string()
                parents = {p.to_user_string().replace("/", ".", 1) for p in graph.get(check.asset_key).parent_keys}
                read = set(told.value) if told and isinstance(told.value, dict) else set()
                if not read or not read <= parents:
                    untold[name] = read
    assert untold == {}


Find = Callable[..., Traced]


@pytest.fixture
def find(filled: Lakehouse, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[Find]:
    """Traces a row, as `de trace` does."""
    monkeypatch.setenv("LAKE_ROOT", str(filled.root))
    monkeypatch.setenv("DE_CALENDAR", filled.environment["DE_CALENDAR"])
    engine = SparkEngine()
    with platform.at_home(), dg.DagsterInstance.from_config(str(filled.instance)) as instance:
        locations = load_locations()
        known = sources_of(Lineages.of(instance, locations), engine, OutsideRows.of_graph(instance, locations))
        yield lambda name, **key: trace(engine.spark_session, known.__getitem__, name, key)
        close_connections()


def below(found: Traced, *names: str) -> Traced:
    """What it was made of, step by step."""
    for name in names:
        found = next(each for each in found.inputs if each.dataset == name)
    return found


def test_a_served_row_leads_to_the_landed_lines(filled: Lakehouse, platform: Platform, find: Find) -> None:
    """The country with the fewest visits, and one of the visits: beside a search through the tables."""
    rows = platform.query("SELECT country, visits FROM serving.daily_traffic_by_country ORDER BY visits, country")
    country, count = rows[0]
    found = find("serving/daily_traffic_by_country", event_date="2024-10-10", country=country)
    enriched = below(found, "gold/visits_cube_daily", "silver/visits_enriched")
    visits = [row for row in filled.rows("silver/visits_enriched") if (row["country"] or "unknown") == country]
    assert (found.rows[0].values["visits"], enriched.total) == (count, len(visits))
    assert {row.values["visit_id"] for row in enriched.rows} <= {row["visit_id"] for row in visits}
    valid = [below(enriched, f"silver/{name}") for name in ("visits", "visits_late")]
    landed = [row for found_there in valid if found_there.rows for row in below(found_there, "bronze/visits").rows]
    assert {row.values["visit_id"] for row in landed} == {row.values["visit_id"] for row in enriched.rows}
    for row in landed:
        assert line_numbers(platform.landing / row.values["source_file"], row.values["raw"])
    served_visit = find("serving/weekly_visits", visit_id=visits[0]["visit_id"])
    (one,) = below(served_visit, "silver/visits_enriched").rows
    assert one.values["visit_id"] == visits[0]["visit_id"]
    assert [bool(each.rows[0].makers[0].run) for each in (found, served_visit)] == [True, True]


def test_a_record_and_a_live_session_lead_to_the_offsets_that_they_were_made_of(platform: Platform, find: Find) -> None:
    with platform.at_home():
        source, reduced = (Topic(KafkaBroker().client_config(), name) for name in (VISITS, VISITS_REDUCED))
        begins = next((p, at) for p, at in sorted(reduced.begins().items()) if at < reduced.ends()[p])
        (record,) = reduced.nearest([begins])
        assert record is not None
        found = find("serving/visits_reduced", partition=str(record.partition), offset=str(record.offset))
        wanted = json.loads(record.value or b"")["visit_id"]
        kept = below(found, "bronze/visits_stream").rows
        assert kept
        for row in kept:
            (original,) = source.nearest([(row.values["topic_partition"], row.values["topic_offset"])])
            assert json.loads((original.value if original else b"") or b"")["visit_id"] == wanted
        ((session, visits),) = platform.query(
            "SELECT session_id, visits FROM gold.sessions_live ORDER BY visits DESC, session_id LIMIT 1"
        )
        live = find("gold/sessions_live", session_id=session)
    assert (live.rows[0].makers, below(live, "bronze/visits_stream").total) == ((), visits)
    user = find(
        "serving/users_snapshot", user_id=platform.query("SELECT min(user_id) FROM serving.users_snapshot")[0][0]
    )
    assert below(user, "silver/users", "bronze/users_changes").rows


def test_every_asset_is_told_by_valid_events_with_its_columns(
    filled: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DE_HOME", str(tmp_path))
    with dg.DagsterInstance.from_config(str(filled.instance)) as instance:
        assert not tell_runs(instance, (defs, dashboards)).away
        known = Lineages.of(instance, (defs, dashboards)).datasets
    events = [json.loads(line) for file in tmp_path.rglob("events-*.jsonl") for line in file.read_text().splitlines()]
    made = {key for location in (defs, dashboards) for key in location.resolve_asset_graph().materializable_asset_keys}
    require_told(events, {name: known[name].lineage for name in (key.to_user_string() for key in made)})
