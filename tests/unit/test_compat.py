"""What the platform takes from private corners of its libraries: in one folder, for versions that were tried.

An upgrade fails here first. Read `de_resources/compat`, run the whole suite, and then state the new versions.
"""

import ast
import importlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from own_modules import parsed
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.errors.exceptions.connect import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

from de_resources.compat.delta_tables import filesystem_of, table_at
from de_resources.compat.engine_errors import java_origin, plain_message
from de_resources.compat.java_process import java_process_lives, session_was_stopped
from de_resources.compat.plans import analysed_plan, formatted_plan

COMPAT = Path(importlib.import_module("de_resources.compat").__file__ or "").parent
PACKAGES = ("de_assets", "de_resources", "de_checks")
TRIED = {"dagster": "1.13.27", "dagster-delta": "0.5.9", "deltalake": "1.6.6", "pyspark": "4.2.0"}
LIBRARIES = ("dagster", "dagster_delta", "deltalake", "pyspark")


@pytest.mark.parametrize("distribution", TRIED)
def test_the_installed_version_is_the_one_that_was_tried(distribution: str) -> None:
    assert version(distribution) == TRIED[distribution]


@pytest.mark.parametrize("module", sorted(path.stem for path in COMPAT.glob("[!_]*.py")))
def test_what_it_hands_on_is_there(module: str) -> None:
    found = importlib.import_module(f"de_resources.compat.{module}")
    assert all(hasattr(found, name) for name in found.__all__)


def _others() -> Iterator[Path]:
    """All files outside of the folder."""
    files = [file for package in PACKAGES for file in (COMPAT.parent.parent / package).rglob("*.py")]
    assert len(files) > 200
    yield from (file for file in files if file.parent != COMPAT)


@pytest.mark.xdist_group("imports")
def test_nobody_else_imports_a_private_module() -> None:
    assert {file: names for file in _others() if (names := list(_private(file)))} == {}


@pytest.mark.xdist_group("imports")
def test_nobody_else_asks_for_a_private_attribute_by_its_name_as_text() -> None:
    """Ruff refuses `frame._jdf` (SLF001), and does not look into `getattr(frame, "_jdf")`."""
    assert {file: names for file in _others() if (names := list(_asked_by_text(file)))} == {}


def test_an_attribute_as_text_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        'getattr(frame, "_jdf", None)\nhasattr(self, "_own")\nsetattr(frame, name, 1)\nmodule.__dict__["x"]\n'
    )
    assert list(_asked_by_text(tmp_path / "module.py")) == ["_jdf"]


def test_a_table_is_opened_at_a_version_and_its_folder_is_looked_at(tmp_path: Path) -> None:
    for value in (1, 2):
        write_deltalake(tmp_path / "t", pa.table({"n": [value]}), mode="overwrite")
    newest = DeltaTable(tmp_path / "t")
    assert table_at(newest, 0).to_pyarrow_table()["n"].to_pylist() == [1]
    listed = filesystem_of(newest).get_file_info(["_delta_log/00000000000000000001.json"])
    assert listed[0].size == (tmp_path / "t" / "_delta_log" / "00000000000000000001.json").stat().st_size


def test_plans_are_handed_out_as_text(spark: SparkSession) -> None:
    frame = spark.range(5).where("id > 3")
    assert "(id#" in analysed_plan(frame)
    assert "Optimized" not in analysed_plan(frame)
    assert "== Physical Plan ==" in formatted_plan(frame)
    assert callable(ConnectDataFrame._explain_string), "over Connect"


def test_what_a_new_java_process_needs_to_be_forgotten_is_there(spark: SparkSession) -> None:
    assert java_process_lives()
    assert not session_was_stopped(spark)
    assert all(hasattr(SparkContext, name) for name in ("_gateway", "_jvm", "_active_spark_context"))
    assert SparkSession._instantiatedSession is not None


def test_errors_keep_what_they_were(spark: SparkSession) -> None:
    with pytest.raises(CapturedException) as caught:
        spark.sql("SELECT nothing").collect()
    assert java_origin(caught.value).getClass().getName() == "org.apache.spark.sql.catalyst.ExtendedAnalysisException"
    assert plain_message(AnalysisException(message="No such column.")) == "No such column."
    assert java_origin(AnalysisException(message="over Connect")) is None


def _private(file: Path) -> list[str]:
    """Names of foreign modules with a part that begins with an underscore."""
    imported = [node.module for node in ast.walk(parsed(file)) if isinstance(node, ast.ImportFrom)]
    foreign = [module for module in imported if module and module.split(".")[0] in LIBRARIES]
    return [module for module in foreign if any(part.startswith("_") for part in module.split("."))]


def _asked_by_text(file: Path) -> Iterator[str]:
    """Names with an underscore that `getattr` and its like ask other objects for."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("attr"):
            asked, name = node.args[0], node.args[1]
            own = isinstance(asked, ast.Name) and asked.id in ("self", "cls")
            if not own and isinstance(name, ast.Constant) and str(name.value).startswith("_"):
                yield from () if str(name.value).startswith("__") else (str(name.value),)
