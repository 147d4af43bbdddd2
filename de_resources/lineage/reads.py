"""What a plan reads beside the inputs that it names: relations that code has opened by itself.

The analysed plan knows the table of a JDBC query and a topic. Folders stand in the physical one only; a relation there has
the attributes of the one in the analysed plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

from de_resources.lineage.expressions import columns, first_attributes
from de_resources.lineage.model import UnnamedRead
from de_resources.lineage.tree import PlanNode

_NO_DATASET = frozenset({"LocalRelation", "OneRowRelation", "EmptyRelation", "CTERelationRef"})
_PLACES = (
    (re.compile(r"JDBCRelation\((?P<name>[^()]+)\)"), "table {}"),
    (re.compile(r"KafkaRelation\(strategy=\w+\[(?P<name>[^\]]+)\]"), "topic {}"),
    (re.compile(r"\bsubscribe=(?P<name>[^,\]]+)"), "topic {}"),
    (re.compile(r"\bpath -> (?P<name>[^,)]+)"), "{}"),
)
_SCAN = re.compile(
    r"^\(\d+\) Scan .*?\nOutput \[\d+\]: \[(?P<output>.*)\]\n(?:.*\n)*?Location: \w+ \[(?P<paths>.*)\]$", re.MULTILINE
)


def is_read(node: PlanNode) -> bool:
    """Whether the operator reads something stored."""
    return not node.children and "Relation" in node.operator and node.operator not in _NO_DATASET


def unnamed_read(node: PlanNode) -> UnnamedRead:
    """What a relation under no alias says of itself: `table …`, `topic …`, a folder, else its format."""
    text = node.arguments
    names = columns(text[text.find("[") + 1 : text.find("]")], ",") or columns(first_attributes(text))
    read = tuple(f"{name}#{identity}" for name, identity in names)
    for pattern, place in _PLACES:
        found = pattern.search(text)
        if found:
            return UnnamedRead(place.format(found["name"].strip('"`')), read)
    return UnnamedRead(text.rpartition("] ")[2][:40], read)


def placed(unnamed: Sequence[UnnamedRead], physical: str) -> tuple[UnnamedRead, ...]:
    """The same reads with the folders that the physical plan knows, and columns without ids; each place once."""
    folders = dict(_folders(physical))
    found: dict[str, tuple[str, ...]] = {}
    for read in unnamed:
        place = next((folders[column] for column in read.columns if column in folders), read.place)
        found[place] = (*found.get(place, ()), *(column.rpartition("#")[0] for column in read.columns))
    return tuple(replace(UnnamedRead(place), columns=names) for place, names in found.items())


def _folders(physical: str) -> Iterator[tuple[str, str]]:
    """The attributes of each scan with the first folder or file that it reads."""
    for scan in _SCAN.finditer(physical):
        path = unquote(scan["paths"].split(", ")[0].removeprefix("file:"))
        for name, identity in columns(scan["output"]):
            yield f"{name}#{identity}", path
