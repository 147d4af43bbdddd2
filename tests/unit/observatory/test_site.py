"""The pages: nothing from outside is markup, nothing is fetched, every link leads somewhere, and a year stays light."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from posixpath import dirname, join, normpath
from urllib.parse import unquote

import pytest

from benchmarks.observatory_world import NOW, days, judged, large, written
from de_resources.observatory.charts import SIGNS, WORDS, strip
from de_resources.observatory.model import (
    Check,
    ColumnRef,
    Evaluation,
    Failure,
    HealthVerdict,
    News,
    ObservedColumn,
    ObservedDataset,
    ObservedPartition,
    ObservedWorld,
    Write,
)
from de_resources.observatory.paths import page_path
from de_resources.observatory.site import pages_of

EVIL = '"><script>alert(1)</script><img src=http://evil.example/x onerror=y>'
HEAVIEST_INDEX, HEAVIEST_PAGE = 600_000, 200_000
MOST_NODES_OF_INDEX, MOST_NODES_OF_PAGE = 9_000, 4_000


class Elements(HTMLParser):
    """All elements of a page: their names, their attributes, where they link to, and what is a place in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.attributes |= set(found)
        self.links += [found["href"]] if found.get("href") else []  # type: ignore[list-item]
        self.ids += [found["id"]] if found.get("id") else []  # type: ignore[list-item]


def hostile() -> ObservedWorld:
    """Every text that comes from outside is an attack."""
    partitions = (ObservedPartition(EVIL), ObservedPartition("b"))
    writes = (Write(1, NOW, EVIL, EVIL, {EVIL: 1.0, "dagster/row_count": 2}), Write(2, NOW, "b", "r", {EVIL: 2.0}))
    check = Check(
        EVIL, EVIL, True, True, ("lag_detector",), (Evaluation(1, NOW, EVIL, False, True, EVIL, 1, {EVIL: 1}),)
    )
    dataset = ObservedDataset(
        EVIL,
        EVIL,
        EVIL,
        (EVIL,),
        (EVIL,),
        ("dead_letter",),
        (EVIL,),
        partitions,
        (ObservedColumn(EVIL, EVIL, EVIL, sources=(ColumnRef(EVIL, EVIL),)),),
        (check,),
        writes,
        writes,
        (Failure(9, NOW, EVIL, EVIL),),
        frozenset({EVIL}),
        "FAIL",
        EVIL,
    )
    return ObservedWorld(NOW, {EVIL: dataset}, (News(EVIL),), (EVIL,))


@cache
def year() -> dict[str, str]:
    """The pages of three hundred datasets, of which a few have their year by hour."""
    return pages_of(large(300, columns=20, hourly=1))


def test_a_hostile_name_or_sentence_is_no_markup() -> None:
    plain = pages_of(ObservedWorld(NOW, {"a/b": ObservedDataset("a/b", partitions=days(1), writes=written(days(1)))}))
    scripts = {len([t for t in Elements(page).tags if t == "script"]) for page in plain.values()}
    for page in pages_of(hostile()).values():
        found = Elements(page)
        assert not {"onerror", "src", "img", "onload"} & (found.attributes | set(found.tags))
        assert found.tags.count("script") in scripts | {2}
        assert "alert(1)</script>" not in page.replace("&lt;/script&gt;", "")


def test_the_data_of_the_script_cannot_end_it() -> None:
    (page,) = (page for path, page in pages_of(hostile()).items() if path != "index.html")
    island = re.search(r'<script type="application/json" id="lineage-data">(.*?)</script>', page, re.DOTALL)
    assert island is not None
    told = json.loads(island[1])
    assert told["nodes"][0] == [0, EVIL]


@pytest.mark.parametrize("path", ["index.html", "silver/orders.html"])
def test_a_page_asks_nobody_for_anything(path: str) -> None:
    page = year()[path]
    assert set(re.findall(r"https?://[^\"' )<]+", page)) <= {"http://www.w3.org/2000/svg"}, "the name of a language"
    assert not re.search(r"@import|url\(|<link|<img|<iframe|\bfetch\(|XMLHttpRequest|\sstyle=", page)
    assert not [link for link in Elements(page).links if "://" in link or link.startswith("//")]


def test_the_policy_names_exactly_this_style_and_this_script() -> None:
    page = year()["index.html"]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        body = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert body is not None
        digest = b64encode(sha256(body[1].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1].replace("&#39;", "'")
    assert "unsafe" not in policy[1]
    assert "default-src &#39;none&#39;" in policy[1]


def test_every_link_leads_to_a_page_and_a_place() -> None:
    """Of the small world all pages, of the large one the index and a page of each layer."""
    pages = year()
    elements = {path: Elements(page) for path, page in pages.items() if "_" not in path}
    for path, found in elements.items():
        for link in found.links:
            target, _, place = unquote(link).partition("#")
            whole = normpath(join(dirname(path), target)) if target else path
            assert whole in pages or "sources/" in whole, f"{path} links to {link}"
            if place and whole in elements and not place.startswith("column-"):
                assert place in elements[whole].ids, f"{path} links to {link}"


def test_a_year_of_hundreds_of_datasets_stays_light() -> None:
    """What a browser has to read and to build, which decides how long it takes: see the figures in `docs/observatory.md`."""
    pages = year()
    assert len(pages) == 301
    assert len(pages["index.html"]) < HEAVIEST_INDEX
    assert len(Elements(pages["index.html"]).tags) < MOST_NODES_OF_INDEX
    heaviest = max((page for path, page in pages.items() if path != "index.html"), key=len)
    assert len(heaviest) < HEAVIEST_PAGE
    for path in ("bronze/orders.html", "gold/orders.html"):  # by hour, by day
        assert len(Elements(pages[path]).tags) < MOST_NODES_OF_PAGE


def test_thousands_of_partitions_checks_and_columns_are_cut_and_counted() -> None:
    partitions = tuple(ObservedPartition(f"p{n:05}") for n in range(9_000))
    writes = written(partitions)
    bad = {p.key: True for p in partitions}
    check = Check("c", by_partition=True, evaluations=judged(writes, bad))
    columns = tuple(ObservedColumn(f"c{n}") for n in range(5_000))
    dataset = ObservedDataset("a/b", partitions=partitions, writes=writes, checks=(check,), columns=columns)
    page = pages_of(ObservedWorld(NOW, {"a/b": dataset}))["a/b.html"]
    assert "9,000 failing" in page
    assert "4,700 more columns" in page
    assert "8,800 more" in page
    assert len(Elements(page).tags) < 2 * MOST_NODES_OF_PAGE
    assert len(page) < 3 * HEAVIEST_PAGE


def test_an_empty_world_and_a_dataset_that_never_ran_are_pages() -> None:
    assert "Nothing is open" in pages_of(ObservedWorld(NOW, {}))["index.html"]
    page = pages_of(ObservedWorld(NOW, {"a": ObservedDataset("a", checks=(Check("c"),))}))["a.html"]
    assert "never written" in page
    assert "It has not judged yet" in page


def test_the_same_world_is_the_same_page() -> None:
    world = large(4, columns=2, hourly=0)
    assert pages_of(world) == pages_of(world)


def test_what_a_clock_has_put_into_the_future_is_told_as_a_time() -> None:
    ahead = ObservedDataset("a", writes=(Write(1, NOW.replace(year=2031), None, "r", {}),))
    assert "2031-12-31 12:00, ahead of the clock" in pages_of(ObservedWorld(NOW, {"a": ahead}))["index.html"]


def test_news_and_what_could_not_be_read_are_told_on_the_index() -> None:
    world = ObservedWorld(NOW, {}, (News("service kafka died", since=NOW),), ("The code location `x` does not load.",))
    index = pages_of(world)["index.html"]
    assert "service kafka died" in index
    assert "The code location `x` does not load." in index
    assert "Nothing is open" not in index


def test_late_data_and_dead_letters_have_their_accounts_on_the_index() -> None:
    """The newest write of each partition counts once; what carries neither has no account."""
    rows = {"a": (7, 2), "b": (5, 1)}
    writes = tuple(
        Write(
            number, NOW, key, "r", {"dagster/partition_row_count": count, "dead_letters/waiting": waiting, "files": 9}
        )
        for number, (key, (count, waiting)) in enumerate(rows.items(), 2)
    )
    replaced = Write(1, NOW, "a", "r", {"dagster/partition_row_count": 900, "dead_letters/waiting": 900})
    partitions = tuple(ObservedPartition(key) for key in rows)
    letters = ObservedDataset(
        "bronze/letters", patterns=("dead_letter",), partitions=partitions, writes=(*reversed(writes), replaced)
    )
    late = ObservedDataset(
        "silver/late",
        patterns=("late_data_detector", "merger"),
        observations=(Write(4, NOW, None, "r", {"late/within_limit": 1234}),),
    )
    world = ObservedWorld(NOW, {each.name: each for each in (letters, late, ObservedDataset("gold/plain"))})
    index = pages_of(world)["index.html"]
    section = index[index.index('aria-labelledby="accounts"') :]
    section = section[: section.index("</section>")]
    told = [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", section)]
    assert told == [
        *("bronze/letters", "dead letter", "12", "waiting 3"),
        *("silver/late", "late data detector", "–", "within limit 1,234"),
    ]
    empty = pages_of(ObservedWorld(NOW, {}))["index.html"]
    assert "No dataset holds late data or dead letters." in empty


def test_no_verdict_is_told_by_its_colour_alone() -> None:
    assert len(set(SIGNS.values())) == len(set(WORDS.values())) == len(HealthVerdict)
    shapes = {verdict: re.search(r' d="([^"]*)"', strip("t", [verdict])) for verdict in HealthVerdict}
    drawn = {verdict: shape[1] for verdict, shape in shapes.items() if shape}
    judged_ones = [v for v in HealthVerdict if v is not HealthVerdict.OUTSIDE]
    assert len({drawn[v] for v in judged_ones}) == len(judged_ones)


@pytest.mark.parametrize(
    "name",
    ["gold/sessions", "a", "index", "../../etc/passwd", "a/../b", ".hidden", "x y/ü", "a/" + "n" * 300, "%2e%2e/a"],
)
def test_a_page_lies_inside_of_the_site_whatever_the_asset_is_called(name: str) -> None:
    path = page_path(name)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*\.html", path)
    assert path != "index.html"
    assert normpath(path) == path


def test_names_that_are_no_files_do_not_share_a_page() -> None:
    assert len({page_path(name) for name in ("a b", "a_b", "a/b", "a:b", "A b")}) == 5


def test_datasets_that_are_not_declared_any_more_are_shown_apart() -> None:
    gone = replace(ObservedDataset("old/thing", writes=written(days(2))), declared=False)
    assert "no longer declared" in pages_of(ObservedWorld(NOW, {"old/thing": gone}))["index.html"]
