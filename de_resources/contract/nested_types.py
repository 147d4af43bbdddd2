"""Columns with fields of their own: pandera's engine for PySpark knows lists and maps, and is taught structs here.

Importing the module is all there is to do. It uses pandera's own way to register a type.
"""

import dataclasses
from typing import Any

from pandera.dtypes import immutable
from pandera.engines.pyspark_engine import DataType, Engine
from pyspark.sql.types import StructField, StructType


@Engine.register_dtype(equivalents=[StructType])
@immutable(init=True)
class Struct(DataType):
    """A struct with these fields; another one has the same fields in the same order, nullability included."""

    type: StructType = dataclasses.field(default=StructType, init=False)  # type: ignore[assignment]

    def __init__(self, fields: Any = ()) -> None:
        object.__setattr__(self, "type", StructType(list(fields)))

    # Annotated, and not as text: pandera finds by it which types it converts.
    @classmethod
    def from_parametrized_dtype(cls, ps_dtype: StructType) -> Any:
        """The type for a struct of PySpark's."""
        fields: list[StructField] = ps_dtype.fields
        return cls(fields)

    def __str__(self) -> str:
        return str(self.type.simpleString())
