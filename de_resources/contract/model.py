"""What the models of contracts derive from: pandera's model for PySpark, which knows rules on rows as well.

    class Sessions(ContractModel):
        started_at: T.TimestampType = pa.Field(nullable=False)
        ended_at: T.TimestampType = pa.Field(nullable=False)

        class Config:
            metadata = {"rules": {"ends_after_start": "ended_at >= started_at"}}

`Sessions.validate(frame)`, in a notebook or a test, then finds fault with the same frames as writes, checks and stores do. As
pandera's model for PySpark it takes PySpark frames only; a pandas frame becomes one by `createDataFrame`, with the contract's
`struct_type()`.

A plain `pandera.pyspark.DataFrameModel` is a contract too, whose `validate` leaves the rules on rows out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pandera.pyspark import Check, DataFrameModel, DataFrameSchema
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.contract.rules import Rule


class ContractModel(DataFrameModel):
    """A model whose `Config.metadata["rules"]` are checks of the whole frame, by their names."""

    @classmethod
    def build_schema_(cls, **kwargs: Any) -> DataFrameSchema:
        """The schema, with a check for each rule on rows: one look at the frame each."""
        schema: DataFrameSchema = super().build_schema_(**kwargs)
        checks = [Check(partial(_is_kept, rule.violated), name=rule.name) for rule in row_rules(cls)]
        schema.checks = [*schema.checks, *checks]
        return schema


def options_of(model: type[DataFrameModel]) -> Mapping[str, Any]:
    """What a model says besides its columns."""
    options: Mapping[str, Any] = getattr(model.Config, "metadata", None) or {}
    return options


def row_rules(model: type[DataFrameModel]) -> list[Rule]:
    """The rules of a model over several columns, in their order."""
    return [Rule(name, (), predicate) for name, predicate in options_of(model).get("rules", {}).items()]


def _is_kept(violated: str, frame: DataFrame) -> bool:
    """Whether no row breaks the rule, and none leaves open whether it does."""
    return frame.where(F.expr(violated)).isEmpty()
