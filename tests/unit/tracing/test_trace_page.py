"""The page of a traced row: what it tells, what it keeps to itself, and where it lies."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from traced_rows import LINE, NOW, OWNERS, run, served, session_of

from de_assets.cli.trace_page import write_page
from de_resources.pages.files import NotPublished
from de_resources.settings import Settings
from de_resources.tracing.page import Surroundings, page_of
from de_resources.tracing.trace import Traced

pytestmark = pytest.mark.pattern("fine_grained_tracker")


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """A home with two landed lines, and an observatory that knows one of the datasets."""
    landed = tmp_path / "landing" / "visits" / "2024-10-11T07" / "part-0.json"
    landed.parent.mkdir(parents=True)
    landed.write_text(f"{{}}\n{LINE}\n", encoding="utf-8")
    known = tmp_path / "observatory" / "gold" / "sessions.html"
    known.parent.mkdir(parents=True)
    known.write_text("<h1>gold/sessions</h1>", encoding="utf-8")
    return Settings.from_environment({"DE_HOME": str(tmp_path)})


def plain(page: str) -> str:
    """What a reader sees, without the style."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.partition("<body>")[2]))


def test_the_way_leads_down_from_the_row_with_owner_and_run_of_each_step(home: Settings) -> None:
    told = plain(write_page(session_of(2), OWNERS, home, NOW).read_text(encoding="utf-8"))
    steps = ["gold/sessions", "silver/visits_enriched", "silver/devices", "bronze/visits", "sources/access_log"]
    places = [told.index(f" {name} ", 80) for name in steps]
    assert places == sorted(places)
    for name, start, end in zip(steps, places, [*places[1:], len(told)], strict=True):
        assert OWNERS[name][0] in told[start:end]
    assert f"run {run(0x601D)} version 3, WRITE" in told
    assert "visits/2024-10-11T07/part-0.json, line 2 " in told
    assert "line ? (the file is gone or was changed)" in told, "the second line was never landed"
    assert "sources/devices_table no owner · outside of the lake" in told
    assert "122 rows · as the asset declares" in told
    assert "and 120 that are not shown" in told


def test_a_file_that_rows_were_merged_into_has_its_newest_commits(home: Settings) -> None:
    told = plain(page_of(session_of(1), Surroundings(), NOW))
    assert [version for version in range(9, 14) if f"version {version}, MERGE" in told] == [11, 12, 13]
    assert "or 2 commits before" in told


def test_nothing_personal_and_no_markup_of_others_is_on_the_page(home: Settings) -> None:
    page = write_page(session_of(9), OWNERS, home, NOW).read_text(encoding="utf-8")
    assert "ann@example" not in page
    assert "xxxx" not in page, "long values are left out, as the command leaves them out"
    assert "/articles/&lt;b&gt;1&lt;/b&gt;" in page
    assert "<b>1</b>" not in page


def test_of_many_rows_a_few_are_open_and_all_are_there() -> None:
    page = page_of(session_of(9), Surroundings(), NOW)
    opened = page.partition("<details>")[0]
    assert ("v-3" in opened, "v-4" in opened, "v-9" in page) == (True, False, True)
    assert "6 more rows" in page


def test_a_row_whose_run_nobody_knows_says_so() -> None:
    told = plain(page_of(served(), Surroundings(), NOW))
    assert "nobody has recorded which run made it" in told
    assert f"run {run(5)} outside of the lake" in told
    assert "no run: written by somebody else version 2, WRITE" in told


def test_it_fetches_nothing_and_its_policy_names_its_own_style() -> None:
    page = page_of(session_of(2), Surroundings(), NOW)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'" in page.replace("&#39;", "'")
    assert not re.findall(r"<script|src=|url\(|https?://", page)
    assert "prefers-color-scheme:dark" in page


def test_datasets_that_the_observatory_knows_are_links(home: Settings) -> None:
    file = write_page(session_of(1), OWNERS, home, NOW)
    (link,) = re.findall(r'href="([^"]*)"', file.read_text(encoding="utf-8"))
    assert (file.parent / link).resolve() == home.home / "observatory" / "gold" / "sessions.html"


def test_each_trace_has_a_page_of_its_own_whose_name_tells_no_key(home: Settings) -> None:
    first = write_page(session_of(1), OWNERS, home, NOW)
    second = write_page(session_of(1), OWNERS, home, NOW.replace(microsecond=1))
    assert first != second
    assert first.relative_to(home.home).as_posix() == "traces/gold/sessions-20241012T063000000000.html"
    assert sorted(file.name for file in first.parent.iterdir()) == sorted([first.name, second.name])


def test_a_name_that_is_none_of_a_file_stays_below_the_home(home: Settings) -> None:
    file = write_page(Traced("../../..", "the row that was asked for"), {}, home, NOW)
    assert (home.home / "traces") in file.resolve().parents


def test_a_page_that_cannot_be_written_says_where(home: Settings) -> None:
    (home.home / "traces").write_text("in the way", encoding="utf-8")
    with pytest.raises(NotPublished, match="traces/gold/sessions"):
        write_page(session_of(1), OWNERS, home, NOW)
