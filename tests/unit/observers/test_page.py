"""The page of a profile: nothing that comes from data is markup, nothing is fetched, nothing personal is shown."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_resources.contract import Contract
from de_resources.observers.drift import judge
from de_resources.observers.measures import Figures
from de_resources.observers.memory import Memory
from de_resources.observers.page import MOST_COLUMNS, ProfiledDataset, markdown_of, page_of
from de_resources.observers.profile import HistoryPoint
from de_resources.pages import plots
from de_resources.pages.plots import Mark

pytestmark = pytest.mark.pattern("offline_observer")

NOW = datetime(2024, 6, 1, tzinfo=UTC)
EVIL = '"><script>alert(1)</script><img src=http://evil.example/x onerror=y>'


class Orders(pa.DataFrameModel):
    """Orders; <b>one</b> row each."""

    amount: T.DoubleType = pa.Field(nullable=True, description="Price & <i>tax</i>")

    class Config:
        """The dataset."""

        name = "silver.orders"


class Elements(HTMLParser):
    """All elements of a page, and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def points(column: str, count: int = 9, value: str = "x") -> Memory:
    figures = {
        "nulls": 1,
        "distinct": 2,
        "min": 0.0,
        "max": 9.0,
        "quantiles": [0.0, 1.0, 2.0, 3.0, 9.0],
        "top": [(value, 7)],
    }
    made = [HistoryPoint(f"2024-01-{n + 1:02}", n, NOW, Figures(10, {column: figures})) for n in range(count)]
    return Memory().with_points("t", count, made)


def page(memory: Memory, *columns: str, name: str = "silver/orders", contract: Contract | None = None) -> str:
    return page_of(ProfiledDataset(name, dict.fromkeys(columns, "double<b>"), contract), memory, judge(memory))


def test_a_hostile_name_or_value_is_no_markup() -> None:
    memory = points(EVIL, value=EVIL).accepting(["2024-01-09"], EVIL)
    shown = page(memory, EVIL, name=EVIL, contract=Contract.of(Orders))
    allowed = (
        "html head meta title style body main h1 h2 h3 p ul li b br small div span i dl dt dd svg line rect circle"
    )
    assert Elements(shown).tags <= {*allowed.split(), "polyline", "text"}
    assert not {"onerror", "src", "href"} & Elements(shown).attributes
    told = markdown_of(ProfiledDataset(EVIL, {EVIL: "double"}), memory, judge(memory))
    assert "<" not in told


def test_the_page_asks_nobody_for_anything() -> None:
    shown = page(points("amount"), "amount", contract=Contract.of(Orders))
    addresses = set(re.findall(r"https?://[^\"' )]+", shown))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of a language, which nobody opens"
    assert not re.search(r"@import|url\(|<link|<script", shown)
    assert "default-src 'none'" in shown


def test_a_phone_and_a_dark_room() -> None:
    shown = page(points("amount"), "amount")
    assert 'name="viewport" content="width=device-width' in shown
    assert "prefers-color-scheme:dark" in shown


def test_what_is_outside_is_said_and_marked() -> None:
    memory = points("amount").with_points("t", 10, [HistoryPoint("2024-01-10", 10, NOW, Figures(5000))])
    shown = page(memory, "amount")
    assert "rows is 5,000, usually" in shown
    assert 'class="out"' in shown
    assert "Outside of what is usual" not in page(points("amount"), "amount")


def test_a_history_of_one_and_a_page_of_nothing() -> None:
    assert "Still learning" in page(points("amount", 1), "amount")
    assert "Nothing was looked at yet" in page(Memory(), "amount")
    assert markdown_of(ProfiledDataset("x", {}), Memory(), judge(Memory())) == "Nothing was looked at yet."


def test_a_very_wide_table_is_cut_and_says_so() -> None:
    columns = [f"c{n}" for n in range(10_000)]
    wide = Memory().with_points(
        "t", 1, [HistoryPoint("2024-01-01", 1, NOW, Figures(1, {c: {"nulls": 0} for c in columns}))]
    )
    shown = page(wide, *columns)
    assert "1,800 more columns are measured and not shown" in shown
    assert "The last 8,000 columns of the table are not measured" in shown
    assert shown.count("<h3>c") == MOST_COLUMNS


@pytest.mark.parametrize(
    "values", [[], [1.0], [2.0, 2.0], [float("nan"), float("inf")], [-1.7e308, 1.7e308], [0.0, -0.0]]
)
def test_any_values_are_drawn(values: list[float]) -> None:
    drawn = plots.history("h", [Mark(str(n), value) for n, value in enumerate(values)])
    assert not re.search(r'="[^"]*(nan|inf)', drawn)
    assert "nan" not in plots.box("b", 5.0, [5.0] * 5, 5.0)
