"""Visits from JSON text: every column, or the reason why not.

Nothing is dropped and nothing raises: a row that cannot be understood gets `error` (and `error_field`), a row that can has
null there. Values that are present but unusable are errors too and not nulls that look like data.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex

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
    # Looked at once: the check of the bytes costs as much as their repair.
    checked = records.withColumn("_is_text", F.is_valid_utf8(text))
    prepared = checked.withColumn("raw", F.when(F.col("_is_text"), text).otherwise(F.make_valid_utf8(text)))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    read = prepared.withColumn("_json", F.from_json(_ended(F.col("raw")), _JSON, options))
    # Converted in a step of their own, because the value and what is wrong with it both need them.
    parsed = read.withColumns({_converted(c): stated_time(F.trim(_source(c))) for c in _TIMES})
    error, field = _error(F.col("_is_text"))
    # Only what says why was rejected: anybody can write an empty object.
    rejected = F.when(_rejected(), F.col("_json.rejected"))
    understood = parsed.select(
        *(F.col(c) for c in records.columns if c != "raw"),
        *(_value(c).alias(c) for c in Contract.of(VisitColumns).column_names),
        F.coalesce(rejected["raw"], F.col("raw")).alias("raw"),
        error.alias(ERROR),
        field.alias(ERROR_FIELD),
        rejected["line"].alias(ERROR_LINE),
        rejected["file"].alias(ERROR_FILE),
    )
    return _judged(understood)


def _judged(visits: DataFrame) -> DataFrame:
    """What was understood and cannot be kept is an error too: what the contract of all visits says, and texts with a NUL.

    Found here it is one dead letter; found later it would stop the partition that it is in.
    """
    contract = Contract.of(VisitColumns)
    texts = [column.name for column in contract.columns if isinstance(column.type, StringType)]
    broken = [
        (F.expr(rule.violated), F.lit(f"{column} is not of {rule.label}"), F.lit(column))
        for rule in contract.rules
        for column in rule.columns
        if rule.label and column not in _TIMES  # which `_error` has judged
    ]
    # Few records have any: only in those are the columns looked at, and a record is not searched once for each of them.
    has_nul = F.col("raw").contains("\\u0000") | F.col("raw").contains("\0")
    with_nul = [(F.col(text).contains("\0"), F.lit(f"{text} holds a NUL character"), F.lit(text)) for text in texts]
    error, field = _first_of(broken, *(F.when(has_nul, found) for found in _first_of(with_nul)))
    is_new = F.col(ERROR).isNull()
    return visits.withColumns(
        {ERROR: F.coalesce(ERROR, error), ERROR_FIELD: F.when(is_new, field).otherwise(F.col(ERROR_FIELD))}
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


def _converted(column: str) -> str:
    return f"_{column}"


def _value(column: str) -> Column:
    return F.when(_is_conceivable(column), F.col(_converted(column))) if column in _TIMES else _source(column)


def _is_conceivable(column: str) -> Column:
    return conceivable(F.col(_converted(column)))


def _error(valid_utf8: Column) -> tuple[Column, Column]:
    """The first thing that is wrong, and the field to blame, if any."""
    broken = (
        (~valid_utf8, F.lit("the bytes are not UTF-8"), F.lit(None)),
        (_rejected(), F.col("_json.rejected.reason"), F.lit(None)),
        (
            ~F.col("_json._end").eqNullSafe(_END) | F.col("_json._corrupt").isNotNull(),
            F.lit("not a JSON object of the expected form"),
            F.lit(None),
        ),
        *((F.coalesce(F.trim(_source(c)), F.lit("")) == "", F.lit(f"{c} is missing"), F.lit(c)) for c in REQUIRED),
        *(
            (_source(c).isNotNull() & F.col(_converted(c)).isNull(), F.lit(f"{c} is no timestamp"), F.lit(c))
            for c in _TIMES
        ),
        *((~_is_conceivable(c), F.lit(f"{c} {INCONCEIVABLE}"), F.lit(c)) for c in _TIMES),
    )
    return _first_of(broken)


def _first_of(
    broken: Sequence[tuple[Column, Column, Column]], error: Column | None = None, field: Column | None = None
) -> tuple[Column, Column]:
    """Reason and field of the first condition that is true, else these."""
    nothing = F.lit(None).cast("string")
    error, field = nothing if error is None else error, nothing if field is None else field
    for condition, reason, blamed in reversed(broken):
        error = F.when(condition, reason).otherwise(error)
        field = F.when(condition, blamed.cast("string")).otherwise(field)
    return error, field
