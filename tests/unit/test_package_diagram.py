"""The diagrams of docs/architecture.md show the imports as they are: no arrow too many, and none is missing."""

import re
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from own_modules import imports, trees

from de_assets.catalogue import PACKAGES, PROJECT

PAGE = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
Arrow = tuple[str, str]


@dataclass(frozen=True)
class Diagram:
    """A Mermaid flowchart: its title, which box each room stands in, and its arrows from box to box."""

    title: str
    boxes: dict[str, str]
    arrows: frozenset[Arrow]

    @classmethod
    def read(cls, text: str) -> "Diagram":
        title = re.findall(r"^title: (.+)$", text, re.MULTILINE)[0]
        labels = dict(re.findall(r'^\s+(\w+)\["(.+)"\]$', text, re.MULTILINE))
        lines = re.findall(r"^\s+(\w+) --> (\w+(?: & \w+)*)$", text, re.MULTILINE)
        drawn = frozenset((start, end) for start, ends in lines for end in ends.split(" & "))
        ids = labels or {name: name for arrow in drawn for name in arrow}
        return cls(title, {room: box for box, label in ids.items() for room in label.split(", ")}, drawn)

    def of(self, imports: set[Arrow]) -> set[Arrow]:
        """The arrows that these imports are in this diagram; what it does not draw, such as single modules, is left out."""
        ends = {(self.boxes[start], self.boxes[end]) for start, end in imports if {start, end} <= self.boxes.keys()}
        return {(start, end) for start, end in ends if start != end}


DIAGRAMS = [Diagram.read(text) for text in re.findall(r"^```mermaid\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]


@cache
def arrows() -> set[Arrow]:
    """From module to module of ours."""
    return {(name, found) for name in trees() for found in imports(name) if found.startswith("de_")}


def rooms(package: str) -> set[str]:
    return {folder.parent.name for folder in (PROJECT / package).glob("*/__init__.py")}


def between_rooms(package: str) -> set[Arrow]:
    inside = [pair for pair in arrows() if all(module.startswith(f"{package}.") for module in pair)]
    return {(start.split(".")[1], end.split(".")[1]) for start, end in inside}


def between_packages() -> set[Arrow]:
    return {(start.split(".")[0], end.split(".")[0]) for start, end in arrows()}


def test_the_page_draws_the_packages_and_their_rooms() -> None:
    assert [diagram.title for diagram in DIAGRAMS] == ["packages", "de_assets", "de_resources"]
    assert len(arrows()) > 500


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda diagram: diagram.title)
def test_arrows_are_the_imports(diagram: Diagram) -> None:
    real = diagram.of(between_packages() if diagram.title == "packages" else between_rooms(diagram.title))
    assert {"only drawn": diagram.arrows - real, "only imported": real - diagram.arrows} == {
        "only drawn": set(),
        "only imported": set(),
    }


@pytest.mark.parametrize("diagram", DIAGRAMS[1:], ids=lambda diagram: diagram.title)
def test_every_room_is_drawn(diagram: Diagram) -> None:
    assert diagram.boxes.keys() == rooms(diagram.title)


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_import_each_other_in_no_circle(package: str) -> None:
    """A module outside of rooms counts as a room of its own: no circle runs through it either."""
    below: dict[str, set[str]] = {}
    for start, end in between_rooms(package):
        below.setdefault(start, set()).update({end} - {start})
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        guilty = [f"{a} -> {b}" for a, b in sorted(arrows()) if _step(package, a, b) in set(pairwise(circle))]
        pytest.fail("\n".join([" -> ".join(circle), *guilty]))


def _step(package: str, start: str, end: str) -> Arrow | None:
    inside = start.startswith(f"{package}.") and end.startswith(f"{package}.")
    return (start.split(".")[1], end.split(".")[1]) if inside else None


def test_no_library_imports_the_blog() -> None:
    assert {arrow for arrow in between_packages() if arrow[1] == "de_assets"} == {("de_assets", "de_assets")}


def test_contracts_import_each_other_and_what_they_are_made_of() -> None:
    outside = {end for start, end in arrows() if start.startswith("de_assets.contracts.")}
    assert {module for module in outside if not module.startswith("de_assets.contracts.")} == {
        "de_resources.contract",
        "de_resources.moments",
        "de_resources.replication.allow_list",
        "de_resources.sql.literals",
    }
