"""The observatory in a real browser, opened from the disk: what people see and touch, in light, in dark and on a phone.

`DE_SCREENSHOTS=docs/images pytest tests/ui/test_observatory_pages.py` renews the pictures of the documentation.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright
from test_browser import CHROMIUM, FLAGS, LARGEST_PICTURE, PATIENCE_MS
from traced_rows import NOW, OWNERS, session_of
from waiting import PATIENCE
from web_ui import PROJECT, until

from benchmarks.observatory_world import large
from de_assets.cli.trace_page import write_page
from de_resources.observatory.site import pages_of
from de_resources.pages.files import publish_site
from de_resources.settings import Settings

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
LEAST_CONTRAST = 4.5
"""Of text on its ground: WCAG 2.1, success criterion 1.4.3."""

pytestmark = [
    pytest.mark.ui,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: `apt-get install chromium` brings it"),
]

_CONTRAST = """() => {
  const light = colour => {
    const part = v => v <= 10 ? v / 3294.6 : ((v / 255 + .055) / 1.055) ** 2.4;
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(part);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = {};
  for (const e of document.querySelectorAll("h1,h2,h3,p,td,th,small,a,li,summary,.verdict,.soft,button,code,b,label,output")) {
    if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const kind = `${e.tagName}.${e.className}`;
    found[kind] = Math.min(found[kind] ?? 99, ratio);
  }
  return found;
}"""


@dataclass
class Visitor:
    """A person with a window over a site on the disk, who reads the console and sees each request."""

    page: Page
    place: Path
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on(
            "console", lambda message: self.complaints.append(message.text) if message.type == "error" else None
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._seen)

    def opens(self, path: str) -> Page:
        self.page.goto(f"file://{self.place}/{path}")
        return self.page

    def _seen(self, request: Request) -> None:
        if not request.is_navigation_request():
            self.asked.append(request.url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_MS)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of two hundred datasets with a year of history."""
    place = tmp_path_factory.mktemp("home") / "observatory"
    publish_site(place, pages_of(large(200, columns=12, hourly=1)))
    return place


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Opens a window on a site. In the end nothing was asked of anybody, and the console is calm."""
    visitors: list[Visitor] = []

    def open_(place: Path, size: Any = DESK, scheme: Any = "light", **options: Any) -> Visitor:
        context = browser.new_context(viewport=size, color_scheme=scheme, locale="en-GB", **options)
        context.set_default_timeout(PATIENCE_MS)
        visitors.append(Visitor(context.new_page(), place))
        return visitors[-1]

    yield open_
    for visitor in visitors:
        visitor.page.context.close()
        assert visitor.complaints == []
        assert visitor.asked == [], "a page that fetches something"


def test_datasets_are_found_by_name_and_by_how_they_are(visit: Visit, year: Path) -> None:
    page = visit(year).opens("index.html")
    rows = page.locator("tr[data-verdict]:visible")
    expect(rows).to_have_count(200)
    page.get_by_label("Find").fill("silver team:web")
    expect(rows).to_have_count(17)
    page.get_by_label("Find").fill("")
    failing = page.locator(".tile.v-failed")
    failing.click()
    count = int(failing.locator(">b").inner_text())
    expect(rows).to_have_count(count)
    assert 0 < count < 200
    assert set(rows.evaluate_all("rows => rows.map(row => row.dataset.verdict)")) == {"failed"}
    failing.click()
    expect(rows).to_have_count(200)


def test_a_gold_column_leads_to_its_beginning_and_its_owner_by_clicks_alone(visit: Visit, year: Path) -> None:
    page = visit(year).opens("index.html")
    page.locator(".datasets").get_by_role("link", name="gold/returns", exact=True).click()
    page.get_by_role("button", name="amount", exact=True).click()
    expect(page.locator("#lineage-told")).to_contain_text("begins in bronze/returns.amount (team:accounts)")
    nodes = page.locator("#lineage-map .node")
    assert [text.split("\n")[0] for text in nodes.all_inner_texts()] == [
        f"{layer}/returns" for layer in ("bronze", "silver", "gold", "serving")
    ]
    expect(page.locator("#lineage-map path")).to_have_count(3)
    nodes.first.get_by_role("link", name="amount").click()
    page.wait_for_url("**/bronze/returns.html#column-amount")
    expect(page.locator("#lineage-told")).to_contain_text("3 columns below are made of it")


def test_the_keyboard_is_enough(visit: Visit, year: Path) -> None:
    page = visit(year).opens("gold/returns.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    button = page.get_by_role("button", name="country", exact=True)
    button.focus()
    assert button.evaluate("e => getComputedStyle(e).outlineStyle") == "solid", "where the focus is, is seen"
    page.keyboard.press("Enter")
    expect(page.locator("#lineage")).to_be_visible()
    assert button.get_attribute("aria-pressed") == "true"


def test_a_square_of_the_calendar_says_what_it_is(visit: Visit, year: Path) -> None:
    page = visit(year, PHONE, has_touch=True).opens("gold/orders.html")
    square = page.locator(".calendar .q.v-warned").first
    square.scroll_into_view_if_needed()
    square.tap()
    expect(page.locator(".tells").first).to_contain_text("2024-07-29: warning. readers_keep_up, volume_is_stable")


def test_light_or_dark_is_as_the_system_has_it_until_a_person_chooses(visit: Visit, year: Path) -> None:
    visitor = visit(year, scheme="dark")
    page = visitor.opens("index.html")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="light and dark").click()
    light = page.evaluate(ground)
    assert light != dark
    # A browser keeps what a page stores some time after it was stored.
    until(
        lambda: visitor.opens("silver/visits.html").evaluate(ground) == light,
        PATIENCE,
        lambda: "the choice is not kept",
    )
    assert visit(year, scheme="light").opens("index.html").evaluate(ground) == light


@pytest.mark.parametrize("path", ["index.html", "bronze/orders.html"])
def test_every_text_can_be_read(visit: Visit, year: Path, path: str) -> None:
    page = visit(year, scheme="light").opens(path)
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        found = page.evaluate(_CONTRAST)
        assert len(found) > 10
        assert {kind: round(ratio, 2) for kind, ratio in found.items() if ratio < LEAST_CONTRAST} == {}, scheme
    assert len(grounds) == 2, "both were looked at"


def test_a_phone_scrolls_in_one_direction_only_however_long_the_history(visit: Visit, year: Path) -> None:
    """Seconds depend on the machine and are in `docs/observatory.md`; what they come from is bounded here."""
    visitor = visit(year, PHONE)
    for path, most in (
        ("index.html", 8_000),
        ("bronze/orders.html", 4_000),
        ("gold/returns.html#column-amount", 4_000),
    ):
        page = visitor.opens(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        assert page.evaluate("document.querySelectorAll('*').length") < most, path


def test_without_scripts_the_page_is_there_and_links_lead_up(visit: Visit, year: Path) -> None:
    page = visit(year, java_script_enabled=False).opens("gold/returns.html")
    page.locator(".columns").get_by_role("link", name="silver/returns.amount").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("silver/returns")


def test_the_site_of_a_lake_that_was_just_filled(lakehouse: dict[str, str], visit: Visit, tmp_path: Path) -> None:
    """`de run` has written it: a gold column leads over silver and bronze to the landed files and their owner."""
    place = Path(lakehouse["DE_HOME"], "observatory")
    written = place.resolve()
    de = str(Path(sys.executable).with_name("de"))
    again = subprocess.run(
        [de, "observe"], cwd=PROJECT, env=lakehouse, capture_output=True, text=True, timeout=PATIENCE
    )
    assert f"Observatory: {place}/index.html" in again.stdout, again.stderr
    assert place.resolve() != written, "another site stands in its place"
    visitor = visit(place)
    page = visitor.opens("index.html")
    expect(page.locator("tr[data-verdict]").filter(has_text="gold/sessions").first).to_contain_text("healthy")
    page.locator(".datasets").get_by_role("link", name="gold/visits_cube_daily").click()
    page.get_by_role("button", name="country", exact=True).click()
    expect(page.locator("#lineage-told")).to_contain_text("begins in")
    page = visitor.opens("gold/sessions.html#column-first_page")
    expect(page.locator("#lineage-told")).to_contain_text("sources/access_log (team:web)")
    expect(page.locator("#lineage-map .node").filter(has_text="silver/visits_enriched").first).to_be_visible()
    page.screenshot(path=tmp_path / "observatory-lineage.png", animations="disabled")
    kept(tmp_path / "observatory-lineage.png")


def test_a_traced_row_can_be_read_in_light_and_dark_and_on_a_phone(visit: Visit, tmp_path: Path) -> None:
    """The page of `de trace … --page`, which needs no script: the ways, the other rows, and the page of a dataset."""
    known = tmp_path / "observatory" / "gold" / "sessions.html"
    known.parent.mkdir(parents=True)
    known.write_text("<h1>the dataset</h1>", encoding="utf-8")
    file = write_page(session_of(5), OWNERS, Settings.from_environment({"DE_HOME": str(tmp_path)}), NOW)
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        page = visit(file.parent, size, scheme, java_script_enabled=False).opens(file.name)
        expect(page.locator("h2")).to_have_count(6)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        found = page.evaluate(_CONTRAST)
        assert {kind: round(ratio, 2) for kind, ratio in found.items() if ratio < LEAST_CONTRAST} == {}
        page.screenshot(path=tmp_path / f"trace-{scheme}.png", animations="disabled")
        page.get_by_text("2 more rows").first.click()
        expect(page.get_by_text("v-5").first).to_be_visible()
        page.get_by_role("link", name="gold/sessions").click()
        expect(page.get_by_role("heading")).to_have_text("the dataset")
    shutil.move(tmp_path / "trace-light.png", tmp_path / "trace.png")
    kept(tmp_path / "trace.png")


def test_pictures_of_a_year(visit: Visit, year: Path, tmp_path: Path) -> None:
    for name, path, scheme in (
        ("observatory", "index.html", "light"),
        ("observatory-year", "silver/orders.html", "dark"),
    ):
        page = visit(year, scheme=scheme).opens(path)
        page.screenshot(path=tmp_path / f"{name}.png", animations="disabled")
        kept(tmp_path / f"{name}.png")


def kept(picture: Path) -> None:
    """A picture has something on it, and is no heavier than others; it is the documentation's where that is wanted."""
    assert 20_000 < picture.stat().st_size < LARGEST_PICTURE
    if wanted := os.environ.get("DE_SCREENSHOTS"):
        shutil.copyfile(picture, PROJECT / wanted / picture.name)
