"""Which rows of an input belong to a row of the output.

An asset may declare it, as SQL between its own row `o` and a row `s` of the input:

    metadata={"row_lineage": {"silver/visits": "s.user_id = o.user_id AND s.event_time BETWEEN o.started_at AND o.ended_at"}}

Undeclared, values decide that the plan has carried over as they are: all of them have to be equal, null and null as well, and
they have to hold the key of the input. Otherwise nobody can tell, and it is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from de_resources.sql.identifiers import identifier

ROW_LINEAGE = "row_lineage"
"""Metadata of an asset: by input, the condition between a row `s` of it and the asset's own row `o`."""


@dataclass(frozen=True)
class RowCondition:
    """`sql` between `s` and `o`, and how it came about, for people; without one, `how` says why there is none.

    `equal` are the columns of `o` whose values have to be in these of `s`, where nothing else is asked.
    """

    sql: str | None
    how: str
    equal: Mapping[str, str] = field(default_factory=dict)


def condition_of(
    source: str, key: Sequence[str], metadata: Mapping[str, Any], same: Mapping[str, Mapping[str, str]]
) -> RowCondition:
    """The condition for one input with this key; `same` are the values that were carried over, by the output's columns."""
    declared = (metadata.get(ROW_LINEAGE) or {}).get(source)
    if declared:
        return RowCondition(declared, "as the asset declares")
    pairs = {own: sources[source] for own, sources in same.items() if source in sources}
    if not pairs:
        return RowCondition(None, "no value is carried over, and the asset declares no `row_lineage` for it")
    lacking = set(key) - set(pairs.values())
    if lacking:
        return RowCondition(
            None,
            f"the values carried over do not hold its key ({', '.join(sorted(lacking))}); declare `row_lineage` for it",
        )
    equal = [f"s.{identifier(theirs)} <=> o.{identifier(own)}" for own, theirs in sorted(pairs.items())]
    return RowCondition(" AND ".join(equal), f"by equal {', '.join(sorted(pairs))}", pairs)
