"""Visits from JSON text: every column, or the reason why not.

Nothing is dropped and nothing raises: a row that cannot be understood gets `error` (and `error_field`), a row that can has
null there. Values that are present but unusable are errors too and not nulls that look like data.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_hex
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from de_assets.contracts.topics import VisitRecord
from de_assets.contracts.visits import VisitColumns
from de_assets.transforms.error_management.stated_time import conceivable, stated_time
from de_resources.contract import Contract
from de_resources.moments import INCONCEIVABLE

REQUIRED = ("visit_id", "event_time", "user_id", "page")
ERROR, ERROR_FIELD, ERROR_LINE, ERROR_FILE = "error", "error_field", "error_line", "error_file"


def _texts(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


# Times stay text here: the JSON reader turns an unreadable time into a null that looks like a missing one.
_JSON = StructType(
    [
        *Contract.of(VisitRecord).struct_type(),
        StructField("rejected", _texts("raw", "reason").add("line", LongType()).add("file", StringType())),
        *_texts("_end", "_corrupt"),
    ]
)
# The reader stops after one object, whatever follows it. What it has to find last is therefore put into the object's end; a
# record cannot know it, and so cannot pretend that it is over.
_END = token_hex(8)
_NESTED = {
    "referral": "context.referral",
    "ad_id": "context.ad_id",
    "ip": "context.user.ip",
    "login": "context.user.login",
    "connected_since": "context.user.connected_since",
    "browser": "context.technical.browser",
    "browser_version": "context.technical.browser_version",
    "network_type": "context.technical.network_type",
    "device_type": "context.technical.device_type",
    "device_version": "context.technical.device_version",
    "is_bot": "context.technical.is_bot",
}
_TIMES = ("event_time", "connected_since")


def parse_visits(records: DataFrame, payload: str) -> DataFrame:
    """Add the visit's columns and the error columns to records with a binary or text column `payload`.

    Adds every column of `VisitColumns`, `raw` (the payload as text, broken bytes replaced), `error` (null: understood),
    `error_field`, and `error_line`/`error_file` where an earlier reader had already rejected the line and said so.
    """
    text = F.col(payload).cast("string")
    # A step copies what it keeps: the text is kept as it came, and mended where it is read and where it is given.
    mended = F.when(F.col("_is_text"), text).otherwise(F.make_valid_utf8(text))
    # Looked at once: the check of the bytes costs as much as their repair.
    checked = records.withColumn("_is_text", F.is_valid_utf8(text)).withColumn("_object", _ended(mended))
    # Asked about, so that the engine makes the text in a step of its own: what it reads it would make by an interpreter.
    whole = F.when(F.octet_length("_object") > 0, F.col("_object"))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    read = checked.withColumn("_json", F.from_json(whole, _JSON, options)).drop("_object")
    # Converted in a step of their own, because the value and what is wrong with it both need them.
    timed = read.withColumns({_converted(c): stated_time(F.trim(_source(c))) for c in _TIMES})
    columns = Contract.of(VisitColumns).column_names
    number, reasons, fields = _first_fault(text)
    judged = timed.withColumns({c: _value(c) for c in columns}).withColumn("_fault", number)
    # Only what says why was rejected: anybody can write an empty object.
    rejected = F.when(_rejected(), F.col("_json.rejected"))
    return judged.select(
        *(c for c in records.columns if c != "raw"),
        *columns,
        F.coalesce(rejected["raw"], mended).alias("raw"),
        F.coalesce(F.get(reasons, F.col("_fault")), rejected["reason"]).alias(ERROR),
        F.get(fields, F.col("_fault")).alias(ERROR_FIELD),
        rejected["line"].alias(ERROR_LINE),
        rejected["file"].alias(ERROR_FILE),
    )


def _ended(text: Column) -> Column:
    """The object that the text is, with `_end` as its last member. What does not end as an object does gets none."""
    # Trimming looks at every sign of a text, which few need.
    trimmed = F.rtrim(text, F.lit(" \t\r\n"))
    return F.when(text.endswith("}"), _with_end(text)).when(trimmed.endswith("}"), _with_end(trimmed)).otherwise(text)


def _with_end(text: Column) -> Column:
    # Cut as bytes: the signs of a text have to be counted.
    without_brace = F.substring(text.cast("binary"), F.lit(1), F.octet_length(text) - 1).cast("string")
    return F.concat(without_brace, F.lit(f',"_end":"{_END}"}}'))


def _rejected() -> Column:
    return F.coalesce(F.trim(F.col("_json.rejected.reason")), F.lit("")) != ""


def _source(column: str) -> Column:
    return F.col(f"_json.{_NESTED.get(column, column)}")


def _stated(column: str) -> Column:
    return _source(column) if column in _TIMES else F.col(column)


def _converted(column: str) -> str:
    return f"_{column}"


def _value(column: str) -> Column:
    if column not in _TIMES:
        return _source(column)
    moment = F.col(_converted(column))
    return F.when(conceivable(moment), moment)


class _Fault(NamedTuple):
    """What can be wrong with a record, the reason that is told, and the field to blame, if any."""

    is_there: Column
    reason: str | None
    field: str | None = None


def _first_fault(text: Column) -> tuple[Column, Column, Column]:
    """The place of the first fault in the lists of reasons and fields, which are given too; nothing is told of no fault.

    A number, because the engine judges each record by this, and compiles it into one method: Java leaves one of more than
    8,000 bytes interpreted. A text for each fault is half as long again.
    """
    faults = _faults()
    with_nul = _with_nul()
    first = F.when(faults[0].is_there, 0)
    for place, fault in enumerate(faults[1:], 1):
        first = first.when(fault.is_there, place)
    # JSON has a NUL in this form only, and few records do: only in those are the columns looked at.
    found = F.array_position(F.array(*(fault.is_there for fault in with_nul)), True).cast("int")
    first = first.when(text.contains("\\u0000"), found + len(faults))
    told = [*faults, _Fault(F.lit(False), None), *with_nul]  # the position of what is not found is 0
    return first, _texts_of(each.reason for each in told), _texts_of(each.field for each in told)


def _texts_of(texts: Iterable[str | None]) -> Column:
    return F.array(*(F.lit(text).cast("string") for text in texts))


def _faults() -> list[_Fault]:
    """All but NULs, in the order in which they are told.

    What was understood and cannot be kept is a fault too, as the contract of all visits says: found here it is one dead
    letter; found later it would stop the partition that it is in.
    """
    is_whole = F.col("_json._end").eqNullSafe(_END) & F.col("_json._corrupt").isNull()
    return [
        _Fault(~F.col("_is_text"), "the bytes are not UTF-8"),
        _Fault(_rejected(), None),  # which has a reason of its own
        _Fault(~is_whole, "not a JSON object of the expected form"),
        *(_Fault(F.coalesce(F.trim(_stated(c)), F.lit("")) == "", f"{c} is missing", c) for c in REQUIRED),
        *(_Fault(_stated(c).isNotNull() & F.col(_converted(c)).isNull(), f"{c} is no timestamp", c) for c in _TIMES),
        *(_Fault(F.col(_converted(c)).isNotNull() & F.col(c).isNull(), f"{c} {INCONCEIVABLE}", c) for c in _TIMES),
        *(
            _Fault(F.expr(rule.violated), f"{column} is not of {rule.label}", column)
            for rule in Contract.of(VisitColumns).rules
            for column in rule.columns
            if rule.label and column not in _TIMES
        ),
    ]


def _with_nul() -> list[_Fault]:
    """Texts with a NUL, which not every reader of a table can hold."""
    texts = [column.name for column in Contract.of(VisitColumns).columns if isinstance(column.type, StringType)]
    return [_Fault(F.col(each).contains("\0"), f"{each} holds a NUL character", each) for each in texts]
