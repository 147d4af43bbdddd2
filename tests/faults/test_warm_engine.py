"""The Java process in which `make sabotage` asks its tests: one call of pytest leaves nothing to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sabotage.trial import run
from sabotage.warm_engine import WarmEngine
from sabotage.workplace import Workplace

pytestmark = pytest.mark.faults

TEST = "tests/unit/test_leaves_something.py"
LEAVES_SOMETHING = """
import os

from pyspark import SparkContext


def test_leaves_something(spark):
    assert SparkContext._gateway.proc is None, "this process has started none"
    assert not {"PYSPARK_GATEWAY_PORT", "DE_SABOTAGE_ENGINE"} & set(os.environ)
    assert not spark.catalog.tableExists("global_temp.left")
    assert spark.conf.get("spark.left", None) is None
    spark.range(3).createGlobalTempView("left")
    spark.conf.set("spark.left", "here")
    # Whoever is ended says no goodbye.
    os._exit(0) if os.environ.get("DE_ENDS") else None
"""


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    copy = Workplace(tmp_path / "copy")
    (copy.folder / TEST).write_text(LEAVES_SOMETHING)
    return copy


@pytest.fixture
def engine(workplace: Workplace) -> Iterator[WarmEngine]:
    engine = WarmEngine(workplace)
    yield engine
    engine.end()


def test_calls_of_pytest_have_an_application_each_in_one_java_process(workplace: Workplace, engine: WarmEngine) -> None:
    """Neither a view nor a setting of one is seen by the next, also where the first was ended in the middle."""
    address = engine.environment()
    assert run(workplace, [TEST], {**address, "DE_ENDS": "1"}).broken == "pytest ended with 0"
    engine.clear()
    assert engine.environment() == address != {}
    outcome = run(workplace, [TEST], engine.environment())
    assert (outcome.failed, len(outcome.passed), outcome.broken) == ((), 1, None), outcome.told
