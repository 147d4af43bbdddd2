"""Versions that are valid at one moment are red before anybody joins with them, and green when the history is right again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from io_manager_support import Shop, asset
from red_checks import told

from de_assets.silver.users import checks
from de_checks.intervals import NAME, Interval, interval_check
from de_resources.lake import Lake
from de_resources.spark import SparkEngine

pytestmark = pytest.mark.pattern("static_joiner")

SCHEMA = "user_id STRING, country STRING, valid_from TIMESTAMP, valid_to TIMESTAMP"
RIGHT = "VALUES ('a', 'FR', 0, 5), ('a', 'PL', 5, NULL), ('b', 'SE', 1, 2), ('b', 'SE', 4, NULL)"
WRONG = "VALUES ('a', 'FR', 0, 6), ('a', 'PL', 5, NULL), ('b', 'SE', 1, 2), ('b', 'SE', 4, NULL)"


@pytest.mark.red_check("versions_do_not_overlap")
def test_two_versions_at_one_moment_are_red_until_the_history_is_right(engine: SparkEngine, lake: Path) -> None:
    shop = Shop(engine, lake)
    now = [WRONG]
    times = "timestamp_seconds(f) valid_from, timestamp_seconds(t) valid_to"
    query = f"SELECT user_id, country, {times} FROM {{}} AS v(user_id, country, f, t)"
    users = asset("users", lambda _: shop.spark.sql(query.format(now[0])))
    check = interval_check(users, Interval(["user_id"]))
    resources = {"io_manager": shop.manager, "lake": Lake(root_uri=str(lake), spark=engine)}

    def judged() -> tuple[bool, bool, dict[str, Any]]:
        run = dg.materialize([users, check], instance=shop.instance, resources=resources, raise_on_error=False)
        (found,) = run.get_asset_check_evaluations()
        told(NAME, passed=found.passed)
        return found.passed, found.blocking, {name: value.value for name, value in found.metadata.items()}

    assert judged() == (False, True, {"overlaps": 1, "keys": 1, "gaps": 1})
    now[0] = RIGHT
    passed, _, figures = judged()
    assert (passed, figures["gaps"]) == (True, 1), "a user who was gone for a while is no mistake"


def test_the_users_of_the_graph_are_asked() -> None:
    assert NAME in {key.name for check in checks for key in check.check_keys}
