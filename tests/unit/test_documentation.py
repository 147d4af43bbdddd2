"""The documentation holds together: links lead somewhere, files that are named exist, pages of patterns have one form."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from de_assets import catalogue

PROJECT = catalogue.PROJECT
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
PATTERN_PAGES = sorted((PROJECT / catalogue.PAGES).glob("*/*.md"))
SOURCES = [file for package in catalogue.PACKAGES for file in sorted((PROJECT / package).rglob("*.py"))]
FOLDERS = ("de_assets", "de_resources", "de_checks", "tests", "docs", "benchmarks")
HEADINGS = [
    "Problem",
    "How it works here",
    "In your own project",
    "What it costs",
    "When not",
    "How to watch it",
]
READERS_OWN = {"orders.py"}
"""Files that a page tells its reader to write."""


def _id(file: Path) -> str:
    return str(file.relative_to(PROJECT))


def _prose(file: Path) -> str:
    return re.sub(r"^```.*?^```$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _anchors(file: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", _prose(file), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _dead_links(file: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(file)):
        place, _, anchor = link.partition("#")
        if "://" in place:
            continue
        target = file.parent / place if place else file
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(_dead_links(page)) == []


@pytest.fixture(scope="module")
def names() -> set[str]:
    """All ways to name a file or folder of the project: its path, and each end of it."""
    found = [path.relative_to(PROJECT) for folder in FOLDERS for path in (PROJECT / folder).rglob("*")]
    found += [path.relative_to(PROJECT) for path in PROJECT.iterdir()]
    return {"/".join(path.parts[start:]) for path in found for start in range(len(path.parts))}


@pytest.mark.parametrize("file", [*PAGES, *SOURCES], ids=_id)
def test_every_file_that_is_named_exists(file: Path, names: set[str]) -> None:
    quoted = re.findall(r"`([\w./-]+)`", _prose(file))
    paths = {q for q in quoted if q.endswith(".py") or q.partition("/")[0] in FOLDERS}
    assert {path for path in paths - READERS_OWN if path.removeprefix("./").rstrip("/") not in names} == set()


def test_contributing_names_whole_paths() -> None:
    """Who opens it knows no file yet: nothing is named by its end."""
    quoted = re.findall(
        r"`([\w.-]+/[\w./-]*|[\w-]+\.(?:md|py|toml|yaml|lock)|Makefile)`", _prose(PROJECT / "CONTRIBUTING.md")
    )
    assert len(quoted) > 20
    assert [path for path in quoted if not (PROJECT / path).exists()] == []


@pytest.mark.parametrize("file", PATTERN_PAGES, ids=_id)
def test_a_page_of_a_pattern_has_the_form_of_all(file: Path) -> None:
    pattern = catalogue.PATTERNS[file.stem]
    head = f"# {pattern.title}\n\n> {pattern.promise}\n\n[All patterns](../README.md) · {pattern.family}\n"
    assert file == PROJECT / catalogue.page(pattern)
    assert file.read_text(encoding="utf-8").startswith(head)
    assert re.findall(r"^## (.+)$", _prose(file), flags=re.MULTILINE) == HEADINGS


def test_a_family_has_one_name_wherever_it_has_a_folder() -> None:
    families = {str(family).replace(" ", "_") for family in catalogue.Family}
    folders = [PROJECT / catalogue.PAGES, PROJECT / "de_assets" / "transforms"]
    found = {each.name for folder in folders for each in folder.iterdir() if each.is_dir() and each.name[0] != "_"}
    assert len(found) > 3
    assert found <= families


def test_every_pattern_of_the_families_that_are_built_has_a_page() -> None:
    described = {file.stem for file in PATTERN_PAGES}
    built = list(catalogue.Family)[:3]
    assert {p.name for p in catalogue.PATTERNS.values() if p.family in built} <= described
