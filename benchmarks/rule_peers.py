"""Ten rules on rows and one on keys, as four tools are told them, and what each of them answers.

The rows are `data.stage`d page views of which some break a rule: how many is known by the numbers of the rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandera.pyspark as pa
import pyspark.sql.types as T
from cuallee import Check, CheckLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sparkdq.checks.aggregate.uniqueness_checks.unique_ratio_check import UniqueRatioCheckConfig
from sparkdq.checks.row_level.contained_checks.is_contained_in_check import IsContainedInCheckConfig
from sparkdq.checks.row_level.null_checks.null_check import NullCheckConfig
from sparkdq.checks.row_level.numeric_checks.numeric_between_check import NumericBetweenCheckConfig
from sparkdq.checks.row_level.numeric_checks.numeric_min_check import NumericMinCheckConfig
from sparkdq.checks.row_level.string_checks.regex_match_check import RegexMatchCheckConfig
from sparkdq.core.base_config import BaseCheckConfig
from sparkdq.engine.batch.dq_engine import BatchDQEngine
from sparkdq.management.check_set import CheckSet

from de_checks.frame import judge
from de_checks.keys import Repeated, repeated_by_key
from de_checks.violations import count_by_key
from de_resources.contract import Contract

COUNTRIES = ["de", "fr", "it", "es", "pl", "se", "jp", "br"]
STATUSES = [200, 304, 404]
KEY = "key"
"""Under this name each tool's answer says how many rows are too many for their keys."""

Answer = dict[str, int]
"""Broken rules, and how many rows break each."""


class Views(pa.DataFrameModel):
    """Ten rules. Columns with nulls have no other, so that all tools agree what a null breaks."""

    visit_id: T.StringType = pa.Field(nullable=False, str_matches="[0-9a-f]{16}$")
    user_id: T.LongType = pa.Field(nullable=False, ge=0)
    event_time: T.TimestampType = pa.Field(nullable=False)
    page: T.StringType = pa.Field(nullable=False, str_startswith="/")
    country: T.StringType = pa.Field(nullable=True, isin=COUNTRIES)
    duration_ms: T.LongType = pa.Field(nullable=True, in_range={"min_value": 0, "max_value": 600_000})
    status: T.IntegerType = pa.Field(nullable=True, isin=STATUSES)

    class Config:
        """The key, as this platform says it and as pandera does."""

        name = "bench.views"
        unique = "visit_id"
        metadata = {"key": ["visit_id"]}  # noqa: RUF012 - pandera reads it, nobody changes it


CONTRACT = Contract.of(Views)


def spoiled(views: DataFrame) -> DataFrame:
    """Page views of which every thousandth breaks a rule, and every ten-thousandth has the key of its neighbour."""
    place = F.conv("visit_id", 16, 10).cast("long")

    def at(remainder: int, bad: Any, column: str) -> Any:
        return F.when(place % 1_000 == remainder, bad).otherwise(F.col(column))

    neighbour = F.lower(F.lpad(F.hex(place - 1), 16, "0"))
    return views.select(
        F.when(place % 10_000 == 7, neighbour).otherwise(F.col("visit_id")).alias("visit_id"),
        "user_id",
        at(1, F.lit(None), "event_time").alias("event_time"),
        "page",
        at(2, F.lit("??"), "country").alias("country"),
        at(3, F.lit(-1), "duration_ms").alias("duration_ms"),
        at(4, F.lit(500), "status").alias("status"),
    )


def truth(rows: int) -> Answer:
    """What `spoiled` has done to this many rows, a multiple of ten thousand."""
    broken = ("event_time_present", "country_isin", "duration_ms_in_range", "status_isin")
    return {**dict.fromkeys(broken, rows // 1_000), KEY: rows // 10_000}


def ours(frame: DataFrame) -> Answer:
    """The contract, in one pass."""
    found = judge(frame, CONTRACT)
    too_many = found.repeated.rows - found.repeated.keys
    return {name: n for name, n in {**found.counted.violations, KEY: too_many}.items() if n}


def checks_of_the_graph(frame: DataFrame) -> Answer:
    """What `rows_meet_contract` and `key_is_unique` do where no write has counted the rows: each looks at them."""
    counted = count_by_key(frame, None, CONTRACT)[None]
    repeated = repeated_by_key(frame, None, CONTRACT.key).get(None, Repeated())
    found = {**counted.violations, KEY: repeated.rows - repeated.keys}
    return {name: n for name, n in found.items() if n}


def cuallee(frame: DataFrame) -> Answer:
    """cuallee's check, whose answer is a frame of eleven rows."""
    check = Check(CheckLevel.WARNING, "views")
    rules = (
        ("visit_id_present", check.is_complete, ("visit_id",)),
        ("visit_id_str_matches", check.has_pattern, ("visit_id", "^[0-9a-f]{16}$")),
        ("user_id_present", check.is_complete, ("user_id",)),
        ("user_id_greater_than_or_equal_to", check.is_greater_or_equal_than, ("user_id", 0)),
        ("event_time_present", check.is_complete, ("event_time",)),
        ("page_present", check.is_complete, ("page",)),
        ("page_str_startswith", check.has_pattern, ("page", "^/")),
        ("country_isin", check.is_contained_in, ("country", COUNTRIES)),
        ("duration_ms_in_range", check.is_between, ("duration_ms", (0, 600_000))),
        ("status_isin", check.is_contained_in, ("status", STATUSES)),
        (KEY, check.is_unique, ("visit_id",)),
    )
    for _, rule, arguments in rules:
        rule(*arguments)
    names = [name for name, _, _ in rules]
    told = check.validate(frame).select("id", "violations").collect()
    return {names[row["id"] - 1]: row["violations"] for row in told if row["violations"]}


_SPARKDQ: Mapping[str, BaseCheckConfig] = {
    "visit_id_present": NullCheckConfig(check_id="visit_id_present", columns=["visit_id"]),
    "visit_id_str_matches": RegexMatchCheckConfig(
        check_id="visit_id_str_matches", column="visit_id", pattern="^[0-9a-f]{16}$"
    ),
    "user_id_present": NullCheckConfig(check_id="user_id_present", columns=["user_id"]),
    "user_id_min": NumericMinCheckConfig(check_id="user_id_min", columns=["user_id"], min_value=0, inclusive=True),
    "event_time_present": NullCheckConfig(check_id="event_time_present", columns=["event_time"]),
    "page_present": NullCheckConfig(check_id="page_present", columns=["page"]),
    "page_str_startswith": RegexMatchCheckConfig(check_id="page_str_startswith", column="page", pattern="^/"),
    "country_isin": IsContainedInCheckConfig(check_id="country_isin", allowed_values={"country": COUNTRIES}),
    "duration_ms_in_range": NumericBetweenCheckConfig(
        check_id="duration_ms_in_range",
        columns=["duration_ms"],
        min_value=0,
        max_value=600_000,
        inclusive=(True, True),
    ),
    "status_isin": IsContainedInCheckConfig(check_id="status_isin", allowed_values={"status": STATUSES}),
    KEY: UniqueRatioCheckConfig(check_id=KEY, column="visit_id", min_ratio=1.0),
}


def sparkdq(frame: DataFrame) -> Answer:
    """sparkdq's check: the key while it validates, the rules from the errors of the rows that failed."""
    chosen = CheckSet()
    for config in _SPARKDQ.values():
        chosen.add_check(config)
    result = BatchDQEngine(chosen).run_batch(frame)
    (key,) = (each for each in result.aggregate_results if each.check_id == KEY)
    failed = result.df.where("NOT _dq_passed").select(F.explode("_dq_errors").alias("e"))
    told = failed.groupBy("e.check-id").count().collect()
    metrics = key.metrics
    return {**{name: n for name, n in told if n}, KEY: metrics["total_count"] - metrics["unique_count"]}


def pandera(frame: DataFrame) -> Answer:
    """pandera's `validate`, which says which rules are broken and not how often; only keys are counted."""
    validate: Any = Views.validate
    errors = validate(frame).pandera.errors
    found: Answer = {}
    for error in (each for kinds in errors.values() for kind in kinds.values() for each in kind):
        if error["check"] == "unique":
            found[KEY] = int("".join(filter(str.isdigit, error["error"].split("]")[0])))
        else:
            check = error["check"].split("(")[0]
            found[f"{error['column']}_{_PANDERA.get(check, check)}"] = 1
    return found


_PANDERA = {"not_nullable": "present"}


def comparable(tool: str, answer: Answer) -> Answer:
    """An answer as far as `tool` gives one: pandera names a broken rule without a count."""
    return {name: n if name == KEY or tool != "pandera" else 1 for name, n in answer.items()}
