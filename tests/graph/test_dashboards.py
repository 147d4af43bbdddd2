"""The second code location: it reads gold without a JVM, hears of news, and does not need the first one."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import dagster as dg
import pyarrow as pa
import pytest
from dagster_delta import LocalConfig
from deltalake import write_deltalake

from de_assets.dashboards import gold
from de_assets.dashboards.chart import ChartSeries, bar_and_line, nice_ticks
from de_assets.dashboards.daily_traffic import ReportFolder, daily_traffic
from de_assets.dashboards.definitions import defs
from de_assets.dashboards.gold import GoldMissing, GoldReader
from de_assets.dashboards.lag import lag_check
from de_assets.dashboards.report import html_of, markdown_table_of
from de_assets.dashboards.traffic import Day
from de_resources.lineage.needs import broken_needs, needs

PROJECT = Path(__file__).resolve().parents[2]
TENTH, ELEVENTH = dt.date(2024, 10, 10), dt.date(2024, 10, 11)
SVG = "{http://www.w3.org/2000/svg}"


def write_gold(lake: Path) -> None:
    """Two days of the cube with a subtotal each, and their sessions, as the first location stores them."""
    cube = pa.table(
        {
            "event_date": [TENTH, TENTH, ELEVENTH, ELEVENTH],
            "grouping": pa.array([7, 3, 7, 3], pa.int32()),
            "country": pa.array([None, "PL", None, "PL"], pa.string()),
            "visits": pa.array([120, 60, 200, 90], pa.int64()),
            "users": pa.array([30, 20, 50, 25], pa.int64()),
            "bot_visits": pa.array([5, 1, 7, 2], pa.int64()),
        }
    )
    sessions = pa.table({"session_id": ["a", "b", "c"], "event_date": [TENTH, TENTH, ELEVENTH]})
    write_deltalake(str(lake / "gold" / "visits_cube_daily"), cube, partition_by=["event_date"])
    write_deltalake(str(lake / "gold" / "sessions"), sessions, partition_by=["event_date"])


def draw(lake: Path, pages: Path, instance: dg.DagsterInstance | None = None) -> dg.ExecuteInProcessResult:
    reader = GoldReader(root_uri=str(lake), storage_options=LocalConfig())
    return dg.materialize(
        [*gold.tables, daily_traffic],
        resources={gold.READER: reader, "reports": ReportFolder(root=str(pages))},
        instance=instance,
    )


@pytest.mark.pattern("isolated_sequencer")
def test_page_shows_what_gold_holds(lake: Path, tmp_path: Path) -> None:
    write_gold(lake)
    result = draw(lake, tmp_path / "pages")
    metadata = result.asset_materializations_for_node("dashboards__daily_traffic")[0].metadata
    assert (metadata["days"].value, metadata["newest_day"].value) == (2, "2024-10-11")
    assert "| 2024-10-11 | 200 | 7 | 50 | 1 | 200.0 |" in metadata["table"].value
    assert "| 2024-10-10 | 120 | 5 | 30 | 2 | 60.0 |" in metadata["table"].value
    page = Path(metadata["report"].value).read_text()
    assert "<td>120</td>" in page
    assert "<svg" in page
    assert metadata["plot"].value.startswith("![Daily traffic](data:image/svg+xml;base64,")
    assert [p.name for p in (tmp_path / "pages").iterdir()] == ["daily_traffic.html"]


@pytest.mark.pattern("aligned_fan_in")
def test_a_day_whose_figures_lack_an_hour_is_marked_on_the_page(lake: Path, tmp_path: Path) -> None:
    write_gold(lake)
    with dg.DagsterInstance.ephemeral() as instance:

        def computed(key: dg.AssetKey, **missing: str) -> None:
            told = {
                "missing_inputs": dg.MetadataValue.json({f"2024-10-11-{h[1:]}:00": why for h, why in missing.items()})
            }
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="2024-10-11", metadata=told))

        computed(gold.VISITS_CUBE_DAILY, h07="refused by <b>")
        computed(gold.SESSIONS)
        result = draw(lake, tmp_path / "pages", instance)
        metadata = result.asset_materializations_for_node("dashboards__daily_traffic")[0].metadata
        assert metadata["approximate_inputs"].value == {"2024-10-11": {"2024-10-11-07:00": "refused by <b>"}}
        assert "| 2024-10-11 ≈ | 200 |" in metadata["table"].value
        page = (tmp_path / "pages" / "daily_traffic.html").read_text()
        assert "<p>≈ 2024-10-11: computed without 2024-10-11-07:00 (refused by &lt;b&gt;).</p>" in page
        assert "2024-10-10 ≈" not in page

        computed(gold.VISITS_CUBE_DAILY)
        draw(lake, tmp_path / "pages", instance)
    assert "≈" not in (tmp_path / "pages" / "daily_traffic.html").read_text(), "the hour came, and the mark goes"


def test_missing_gold_is_said_clearly(lake: Path, tmp_path: Path) -> None:
    with pytest.raises(GoldMissing, match=r"`gold/visits_cube_daily` does not exist .* code location `de_assets`"):
        draw(lake, tmp_path)


def test_reading_leaves_the_logging_level_alone(lake: Path, tmp_path: Path) -> None:
    import logging

    write_gold(lake)
    before = logging.getLogger().level
    draw(lake, tmp_path)
    assert logging.getLogger().level == before


class Newsroom:
    """An instance that hears of gold, and the location's condition."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.cursor = instance, None

    def wrote(self, *keys: dg.AssetKey) -> None:
        for key in keys:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="2024-10-10"))

    def asks(self) -> bool:
        result = dg.evaluate_automation_conditions(defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return bool(result.total_requested)


@pytest.fixture
def newsroom() -> Iterator[Newsroom]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Newsroom(instance)


@pytest.mark.pattern("isolated_sequencer")
def test_dashboard_follows_gold(newsroom: Newsroom) -> None:
    assert not newsroom.asks()
    newsroom.wrote(gold.VISITS_CUBE_DAILY)
    assert not newsroom.asks()  # the other table was never written
    newsroom.wrote(gold.SESSIONS)
    assert newsroom.asks()
    assert not newsroom.asks()  # also when its run failed
    newsroom.wrote(gold.SESSIONS, gold.VISITS_CUBE_DAILY, gold.SESSIONS)
    assert newsroom.asks()
    newsroom.wrote(daily_traffic.key)
    assert not newsroom.asks()


@pytest.mark.pattern("lag_detector")
@pytest.mark.red_check("keeps_up_with_its_tables")
def test_the_dashboard_is_as_far_behind_as_what_gold_got_since(lake: Path, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    late = dt.timedelta(hours=25)
    clock = [now]
    check = lag_check(daily_traffic, [gold.VISITS_CUBE_DAILY, gold.SESSIONS], now=lambda: clock[0])
    resources = {
        gold.READER: GoldReader(root_uri=str(lake), storage_options=LocalConfig()),
        "gold_tables": gold.GoldTables(root_uri=str(lake)),
        "reports": ReportFolder(root=str(tmp_path / "pages")),
    }
    job = dg.define_asset_job("look", selection=dg.AssetSelection.checks(check))
    location = dg.Definitions([*gold.tables, daily_traffic], asset_checks=[check], jobs=[job], resources=resources)
    found = []
    with dg.DagsterInstance.ephemeral() as instance:

        def look() -> None:
            run = location.resolve_job_def("look").execute_in_process(instance=instance)
            (verdict,) = run.get_asset_check_evaluations()
            found.append((verdict.passed, verdict.metadata["lag/tables"].value))

        write_gold(lake)
        look()
        dg.materialize([*gold.tables, daily_traffic], resources=resources, instance=instance)
        look()
        sessions = pa.table({"session_id": ["d"], "event_date": [ELEVENTH]})
        write_deltalake(str(lake / "gold" / "sessions"), sessions, mode="append")
        look()
        clock[0] += late
        look()
    cube, visits = "gold.visits_cube_daily", "gold.sessions"
    assert found == [
        (False, {cube: 1, visits: 1}),
        (True, {cube: 0, visits: 0}),
        (True, {cube: 0, visits: 1}),
        (False, {cube: 0, visits: 1}),
    ]


BROKEN = """
import sys
from importlib.abc import MetaPathFinder

class Broken(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        ours = name.startswith(("de_assets.", "de_checks")) and not name.startswith("de_assets.dashboards")
        if ours or name.split(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is broken")

sys.meta_path.insert(0, Broken())
"""


@pytest.mark.pattern("isolated_sequencer")
def test_location_loads_and_runs_while_the_other_is_broken(lake: Path, tmp_path: Path) -> None:
    """Every module of ours outside the location, and the engine, fails to import in that process."""
    write_gold(lake)
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    program = (
        "import dagster as dg\n"
        "from de_assets.dashboards.definitions import defs\n"
        "dg.Definitions.validate_loadable(defs)\n"
        "assert defs.resolve_implicit_global_asset_job_def().execute_in_process().success\n"
        "try:\n    import de_assets.definitions\nexcept ImportError as error:\n    print(error)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{PROJECT}",
        "LAKE_ROOT": str(lake),
        "DE_HOME": str(tmp_path / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "is broken" in done.stdout
    assert (tmp_path / "home" / "dashboards" / "daily_traffic.html").exists()


@pytest.mark.pattern("isolated_sequencer")
def test_what_the_dashboards_need_is_produced() -> None:
    """Who renames a gold table or a column of it breaks this test, whose message names the reader."""
    from de_assets.definitions import defs as first

    assert broken_needs({"de_assets": first, "dashboards": defs}) == []
    alone = broken_needs({"dashboards": defs})
    assert [sentence.split(",")[0] for sentence in alone] == [
        "`dashboards/daily_traffic` of the location `dashboards` needs `gold/sessions`",
        "`dashboards/daily_traffic` of the location `dashboards` needs `gold/visits_cube_daily`",
    ]


def producer(key: str, **columns: str) -> dg.Definitions:
    schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()])

    @dg.asset(key=key.split("/"), metadata={"dagster/column_schema": schema})
    def table() -> None: ...

    return dg.Definitions([table])


@pytest.mark.pattern("isolated_sequencer")
@pytest.mark.parametrize(
    ("produced", "said"),
    [
        (producer("gold/sales", day="date", sold="bigint", more="string"), None),
        (
            producer("gold/sales_daily", day="date", sold="bigint"),
            "needs `gold/sales`, which no location produces: is it",
        ),
        (
            producer("gold/sales", day="date", amount="bigint"),
            "needs the column `sold` of `gold/sales`, which has day, amount",
        ),
        (producer("gold/sales", day="date", sold="string"), "needs `gold/sales.sold` as bigint, and it is string."),
        (dg.Definitions(), "needs `gold/sales`, which no location produces."),
    ],
    ids=["met", "renamed table", "renamed column", "other type", "nobody"],
)
def test_need_that_is_not_met_names_the_reader(produced: dg.Definitions, said: str | None) -> None:
    sales = dg.AssetSpec(["gold", "sales"], metadata=needs({"day": "date", "sold": "bigint"}))
    outside = dg.AssetSpec(["source", "drop"])

    @dg.asset(deps=[sales, outside])
    def chart() -> None: ...

    found = broken_needs({"ours": produced, "theirs": dg.Definitions([sales, outside, chart])})
    assert bool(found) == bool(said)
    assert all(each.startswith(f"`chart` of the location `theirs` {said}") for each in found), found


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - our own text


def days(count: int) -> list[Day]:
    return [Day(TENTH + dt.timedelta(n), visits=10 * n, users=n, bot_visits=0, sessions=n) for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3, 92])
def test_chart_is_valid_svg_with_one_bar_per_day(count: int) -> None:
    values = [10.0 * n for n in range(count)]
    series = ChartSeries("Visits", "#000", values), ChartSeries("Visitors", "#111", values)
    root = parsed(bar_and_line("T", [str(n) for n in range(count)], *series, x_label="x", y_label="y"))
    bars = [r for r in root.iter(f"{SVG}rect") if r.get("x") and r.get("y") != "10"]
    assert len(bars) == count
    assert len([t for t in root.iter(f"{SVG}text")]) < 40
    assert all(float(r.get("height", -1)) >= 0 for r in root.iter(f"{SVG}rect"))


def test_chart_escapes_text() -> None:
    svg = bar_and_line(
        "<T&>", ["<b>"], ChartSeries("<s>", "#000", [1]), ChartSeries("l", "#000", [1]), x_label="<x>", y_label="y"
    )
    parsed(svg)
    assert "<b>" not in svg


def test_chart_refuses_series_of_another_length() -> None:
    with pytest.raises(ValueError, match="`b` has 2 values for 1 labels"):
        bar_and_line(
            "T", ["x"], ChartSeries("b", "#000", [1, 2]), ChartSeries("l", "#000", [1]), x_label="x", y_label="y"
        )


@pytest.mark.parametrize(
    ("top", "ticks"),
    [(0, [0, 1]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (97, [0, 20, 40, 60, 80, 100]), (2896, [0, 1000, 2000, 3000])],
)
def test_ticks_are_round_and_reach_the_top(top: float, ticks: list[float]) -> None:
    assert nice_ticks(top) == pytest.approx(ticks)


def test_report_of_no_day() -> None:
    assert "no day yet" in html_of([])
    assert len(markdown_table_of([]).splitlines()) == 2


def test_newest_day_comes_first() -> None:
    page = html_of(days(3))
    assert page.index("<td>2024-10-12</td>") < page.index("<td>2024-10-10</td>")
    assert "2024-10-10 to 2024-10-12" in page
