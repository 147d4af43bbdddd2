"""What people see in a real browser: the graph, a dataset, its checks, its columns, the automation. Pictures of it all.

`DE_SCREENSHOTS=docs/images pytest tests/ui/test_browser.py` renews the pictures of the documentation.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import ConsoleMessage, Locator, Page, expect, sync_playwright
from waiting import PATIENCE
from web_ui import PROJECT, WebUI

from de_assets.contracts.traffic import VisitsCubeDaily
from de_resources.contract import Contract

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 1000 * PATIENCE
LARGEST_PICTURE = 400_000
DOCUMENTED = ("graph", "dataset", "checks", "columns")

pytestmark = [
    pytest.mark.ui,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: `apt-get install chromium` brings it"),
]


class Visitor:
    """A person with a browser window, who also reads its console."""

    def __init__(self, page: Page, url: str, pictures: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._url = url
        self._pictures = pictures
        page.context.set_default_timeout(PATIENCE_MS)  # of windows that open as well
        page.on("console", self._read)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, path: str) -> Page:
        self.page.goto(self._url + path)
        return self.page

    def sees(self, what: str | re.Pattern[str] | Locator) -> None:
        """Wait until it is visible; fails when it never is."""
        locator = what if isinstance(what, Locator) else self.page.get_by_text(what).locator("visible=true").first
        expect(locator).to_be_visible()

    def takes_picture(self, name: str) -> None:
        """Of the window, once nothing is being fetched or drawn any more."""
        expect(self.page.locator("[class*=Spinner]").locator("visible=true")).to_have_count(0)
        picture = self._pictures / f"{name}.png"
        self.page.screenshot(path=picture, animations="disabled")
        assert 20_000 < picture.stat().st_size < LARGEST_PICTURE

    def _read(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder; those of the documentation are copied where they are wanted, once all are taken."""
    folder = tmp_path_factory.mktemp("pictures")
    yield folder
    wanted = os.environ.get("DE_SCREENSHOTS")
    for name in DOCUMENTED if wanted else ():
        shutil.copyfile(folder / f"{name}.png", PROJECT / str(wanted) / f"{name}.png")


@pytest.fixture(scope="module")
def window(web: WebUI) -> Iterator[Page]:
    web.ask("mutation { setNuxSeen }")  # the invitation to a newsletter covers the first page
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        yield browser.new_page(viewport={"width": 1600, "height": 1000}, timezone_id="UTC", locale="en-GB")
        browser.close()


@pytest.fixture
def visitor(window: Page, web: WebUI, pictures: Path) -> Iterator[Visitor]:
    """A visitor in front of a calm console: errors there fail the test that saw them."""
    visitor = Visitor(window, web.url, pictures)
    yield visitor
    assert visitor.complaints == []


def test_the_graph_shows_every_layer(visitor: Visitor) -> None:
    # The UI draws only the nodes that fit into the window: the way of the visits from the source to the dashboard.
    way = '+key:"dashboards/daily_traffic" or +key:"silver/visits_enriched" or key:"bronze/visits_dead_letter"'
    layers = ("sources", "bronze", "silver", "gold", "dashboards")
    expanded = ",".join(quote(f"global@global:{layer}") for layer in layers)
    page = visitor.open(f"/asset-groups~{quote(way, safe='')}/?expanded={expanded}")
    nodes = page.locator("svg foreignObject")
    for name in ("landed_visits", "visits_dead_letter", "visits_enriched", "visits_cube_daily", "daily_traffic"):
        visitor.sees(nodes.filter(has_text=name).first)
    for name in ("visits_dead_letter", "visits_enriched", "visits_cube_daily"):
        visitor.sees(nodes.filter(has_text=name).locator("[style*=green]"))  # materialised
    visitor.takes_picture("graph")


def test_a_dataset_tells_what_it_is(visitor: Visitor) -> None:
    visitor.open("/assets/silver/visits")
    visitor.sees("Valid visits, each once, in the hour of their event")
    visitor.sees("Identity of the page view, given by its producer")
    visitor.sees("personal")
    visitor.sees("pattern/windowed_deduplicator")
    visitor.sees("late_cascade")
    visitor.takes_picture("dataset")


def test_a_partition_tells_what_was_written(visitor: Visitor) -> None:
    visitor.open(f"/assets/silver/visits?view=partitions&partition={quote('2024-10-10-07:00')}")
    visitor.sees("Materialized (24)")
    visitor.sees("delta/version")
    visitor.sees("contract/violations")
    visitor.takes_picture("partitions")


def test_checks_tell_what_they_judged(visitor: Visitor) -> None:
    visitor.open("/assets/silver/visits?view=checks&checkDetail=rows_meet_contract")
    visitor.sees("Every row keeps the contract")
    visitor.sees(re.compile(r"All \d+ rows keep the \d+ rules"))
    visitor.sees("Passed")
    visitor.takes_picture("checks")


@pytest.mark.pattern("audit_write_audit_publish")
def test_the_checks_tell_what_was_audited_before_anybody_could_see_it(visitor: Visitor) -> None:
    visitor.open("/assets/gold/visits_cube_daily?view=checks&checkDetail=is_published")
    visitor.sees("The audits let readers see what was computed.")
    visitor.sees(re.compile(r"[\d,]+ rows passed \d+ audit"))
    visitor.sees("staged_version")
    visitor.sees("Passed")
    visitor.takes_picture("audits")


def test_columns_tell_what_they_mean(visitor: Visitor) -> None:
    visitor.open("/assets/gold/visits_cube_daily")
    for column in Contract.of(VisitsCubeDaily).columns:
        visitor.sees(visitor.page.get_by_role("cell", name=column.name, exact=True).first)
        visitor.sees(column.description)


def test_columns_tell_where_they_come_from(visitor: Visitor) -> None:
    visitor.open("/assets/gold/visits_cube_daily?view=partitions&partition=2024-10-10")
    visitor.sees("lineage/columns")
    visitor.sees("silver/visits_enriched.country")
    visitor.page.get_by_text("lineage/columns").first.scroll_into_view_if_needed()
    visitor.takes_picture("columns")


def test_the_automation_is_on(visitor: Visitor) -> None:
    size = visitor.page.viewport_size
    assert size is not None
    visitor.open("/automation")
    # The page draws the rows that are on the screen, and no others.
    visitor.page.set_viewport_size({"width": size["width"], "height": 4000})
    for name in ("visits_hour_landed", "feature_released", "cascade", "alerts", "devices_reload", "news_from_gold"):
        visitor.sees(name)
    visitor.page.set_viewport_size(size)
    visitor.takes_picture("automation")


def test_a_report_is_a_click_away(visitor: Visitor) -> None:
    """A browser follows no `file://` link of a page that came over HTTP: the report is served, and shown where its asset is."""
    visitor.open("/assets/dashboards/daily_traffic")
    visitor.sees("newest_day")
    visitor.takes_picture("report-asset")
    assert visitor.page.locator("a[href^='file:']").count() == 0, "a link that does not open"
    with visitor.page.expect_popup() as opened:
        visitor.page.locator("a[href$='/dashboards/daily_traffic.html']").first.click()
    report = opened.value
    expect(report.get_by_role("heading", name="Daily traffic")).to_be_visible()
    expect(report.locator("svg")).to_be_visible()
    report.close()
    row = visitor.page.locator("tr", has_text="plot")
    row.get_by_text("Show Markdown").first.click()
    picture = visitor.page.locator("img[alt='Daily traffic']")
    visitor.sees(picture)
    expect(picture).to_have_js_property("complete", True)
    assert picture.evaluate("picture => picture.naturalWidth") > 300, "the chart is drawn"
    visitor.takes_picture("report")
