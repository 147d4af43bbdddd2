"""Which fields records in JSON have beyond those that their contract promises, counted on the way. Pattern *Online Observer*.

A field that its producer renames is absent under the old name, and there under one that the contract does not know. The
second half is a fact about the text of the record alone: no column shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

UNSAFE = "?"
"""Stands for a name that may be a value, and values may be personal."""

_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"
_MOST, _TRACKED, _PER_RECORD = 50, 1_000, 20


def count_unknown(text: Column, promised: StructType) -> Column:
    """An aggregate: how often which set of unknown fields came, for `unknown_counts`. Texts that are no objects have none.

    Looks into the objects that the contract describes, and not into maps and lists. Bounded, whatever the records hold: names
    by their length, their number per record, and the sets that are told apart, of which the most frequent are kept.
    """
    return F.call_function("approx_top_k", unknown_fields(text, promised), F.lit(_MOST), F.lit(_TRACKED))


def unknown_fields(text: Column, promised: StructType) -> Column:
    """The paths of the unknown fields of one record, such as `context.referrer`, in order and parted by commas."""
    found = F.concat(*_unknown(text, promised, ""))
    return F.concat_ws(",", F.slice(F.array_sort(F.array_distinct(found)), 1, _PER_RECORD))


def unknown_counts(told: list[Any]) -> dict[str, int]:
    """In how many records each unknown field is."""
    counts: dict[str, int] = {}
    for each in told:
        for name in filter(None, (each["item"] or "").split(",")):
            counts[name] = counts.get(name, 0) + each["count"]
    return counts


def shown(names: Mapping[str, Any] | list[str]) -> str:
    """For people: a few of the names, and how many more there are."""
    told = sorted(name for name in names if not name.endswith(UNSAFE))[:5]
    more = len(names) - len(told)
    listed = ", ".join(f"`{name}`" for name in told)
    return listed + (f" and {more:,} more" if told else f"{more:,}, by names that may be values") * bool(more)


def _unknown(text: Column, promised: StructType, parent: str) -> Iterator[Column]:
    known = F.array(*(F.lit(field.name) for field in promised.fields)).cast("array<string>")
    keys = F.coalesce(F.json_object_keys(text), F.array().cast("array<string>"))
    yield F.transform(
        F.array_except(keys, known),
        lambda name: F.concat(F.lit(parent), F.when(name.rlike(_NAME), name).otherwise(F.lit(UNSAFE))),
    )
    for field in promised.fields:
        if isinstance(field.dataType, StructType):
            inner = F.get_json_object(text, f"$['{field.name}']")
            yield from _unknown(inner.cast(StringType()), field.dataType, f"{parent}{field.name}.")
