"""Whether a session's plans are compiled to Java before they run, as Spark does by default, or interpreted.

A plan takes a tenth of a second and more to be compiled, and is then some times faster for each row. Interpreted, hundreds of
different plans, each for a few thousand rows, take a third less CPU of the engine (`docs/architecture.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import SparkSession

INTERPRETED: Mapping[str, str] = MappingProxyType(
    {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
)
COMPILED: Mapping[str, str] = MappingProxyType(
    {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
)


def interpret_plans(session: SparkSession, interpreted: bool = True) -> None:
    """Have this session's plans interpreted from now on, or compiled. Other sessions of the engine stay as they are."""
    for name, value in (INTERPRETED if interpreted else COMPILED).items():
        session.conf.set(name, value)
