"""Advertisements from JSON text: every column, or the reason why not. Pattern: Dead-Letter, in its annotating form.

Nothing is dropped and nothing raises: a row that cannot be understood gets `error`, and null in all of its columns.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from de_assets.contracts.ads import AdsStream
from de_assets.contracts.topics import AdRecord
from de_assets.transforms.error_management.stated_time import conceivable_time
from de_resources.contract import Contract

TIME = "shown_at"
_FIELDS = Contract.of(AdRecord).column_names


def parse_ads(records: DataFrame, payload: str) -> DataFrame:
    """Add the columns of `AdRecord`, the time as one, and `error` to records with a binary column `payload`."""
    text = F.col(payload).cast("string")
    # Bytes that are no text stay away from the reader, which would put something in their place.
    read = F.from_json(F.when(F.is_valid_utf8(text), text), Contract.of(AdRecord).struct_type())
    parsed = records.withColumn("_json", read).withColumns({name: _value(name) for name in _FIELDS})
    judged = parsed.withColumn("error", _error(payload)).drop("_json")
    understood = F.col("error").isNull()
    return judged.withColumns({name: F.when(understood, F.col(name)) for name in _FIELDS})


def _value(name: str) -> Column:
    text = F.trim(F.col(f"_json.{name}"))
    return conceivable_time(text) if name == TIME else F.when(text != "", text)


def _error(payload: str) -> Column:
    """The first thing that is wrong."""
    found = F.when(F.col(payload).isNull(), "the record has no value")
    found = found.when(
        F.coalesce(*(F.col(f"_json.{name}") for name in _FIELDS)).isNull(), "no showing of an ad in JSON"
    )
    found = found.when(F.col(f"_json.{TIME}").isNotNull() & F.col(TIME).isNull(), f"{TIME} is no time")
    for name in _FIELDS:
        found = found.when(F.col(name).isNull(), f"{name} is missing")
    # What the contract refuses would stop the increment that it is in.
    for rule in Contract.of(AdsStream).rules:
        for name in set(rule.columns) & set(_FIELDS):
            found = found.when(F.expr(rule.violated), f"{name} is not of {rule.label}")
    return found
