"""Which columns may leave. Pattern: Transformation Replicator.

The dataset's contract is the allow-list: its columns without the tag `personal` leave, those with it stay, and a column
that the contract does not have is nobody's decision yet, so that nothing leaves at all until somebody made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pandera.pyspark import DataFrameModel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_resources.contract import Contract, ContractModel
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier


class UnclassifiedColumns(PermanentError):
    """Columns at the source of which nobody has said whether they are personal."""

    def __init__(self, dataset: str, columns: Iterable[str]) -> None:
        self.dataset, self.columns = dataset, tuple(columns)
        named = ", ".join(f"`{c}`" for c in self.columns)
        super().__init__(
            f"The source `{dataset}` has columns that its contract does not classify: {named}. Nothing was replicated. Add "
            'them to the contract, with `metadata={"personal": True}` where they are personal.'
        )


class VanishedColumns(PermanentError):
    """Columns that the contract lets leave and that the source does not have."""

    def __init__(self, dataset: str, columns: Iterable[str]) -> None:
        self.dataset, self.columns = dataset, tuple(columns)
        named = ", ".join(f"`{c}`" for c in self.columns)
        super().__init__(
            f"The source `{dataset}` lacks columns that its contract has: {named}. Nothing was replicated. Restore them at "
            "the source, or remove them from the contract."
        )


class PersonalKey(PermanentError):
    """A dataset whose rows are identified, or laid out, by personal data, so that they cannot leave without it."""

    def __init__(self, dataset: str, columns: Iterable[str]) -> None:
        self.dataset, self.columns = dataset, tuple(columns)
        super().__init__(
            f"Key or layout of `{dataset}` hold personal data: {', '.join(self.columns)}. Replicate a dataset that is "
            "identified by a pseudonym."
        )


def allowed_columns(contract: Contract, columns: Iterable[str]) -> list[str]:
    """Of a source's columns those that may leave, in the contract's order.

    Raises `UnclassifiedColumns` for every column that the contract lacks, `VanishedColumns` for every one that it has.
    """
    present = list(columns)
    unknown = [c for c in present if c not in contract.column_names]
    if unknown:
        raise UnclassifiedColumns(contract.name, unknown)
    allowed = [c for c in contract.column_names if c not in contract.personal]
    vanished = [c for c in allowed if c not in present]
    if vanished:
        raise VanishedColumns(contract.name, vanished)
    return allowed


def allowed(frame: DataFrame, contract: Contract) -> DataFrame:
    """The frame without its personal columns. Raises as `allowed_columns`, before any row is read."""
    return frame.select(*(F.col(identifier(c)) for c in allowed_columns(contract, frame.columns)))


def replica_model(model: type[DataFrameModel], name: str, module: str) -> type[DataFrameModel]:
    """The contract of the replica: the source's own, without its personal columns and the rules that need them.

    To be assigned, in `module`, to the name that `name` (`<layer>.<dataset>`) has in camel case, by which assets refer
    to it. Raises `PersonalKey`.
    """
    contract = Contract.of(model)
    options = {**(model.Config.metadata or {})}
    fixed = {*contract.key, *contract.partitioned_by} & contract.personal
    if fixed:
        raise PersonalKey(contract.name, sorted(fixed))
    personal = re.compile("|".join(rf"\b{re.escape(c)}\b" for c in contract.personal) or r"(?!)")
    rules = {rule: sql for rule, sql in options.get("rules", {}).items() if not personal.search(sql)}
    # Table properties serve the source's own consumers, and what these were promised is about the source.
    own = {"properties", "fresh", "consumers"}
    kept = {k: v for k, v in options.items() if k not in own} | {"rules": rules}
    title = "".join(part.capitalize() for part in re.split(r"[._]", name))
    fields = {n: f for n, f in model.__fields__.items() if n not in contract.personal}
    body: dict[str, Any] = {
        "__module__": module,
        "__qualname__": title,
        "__doc__": f"{contract.description}\n\nReplica of `{contract.name}` without personal data.",
        "__annotations__": {column: annotation.raw_annotation for column, (annotation, _) in fields.items()},
        "Config": type("Config", (), {"name": name, "metadata": kept, "__doc__": "As the source."}),
        **{column: definition for column, (_, definition) in fields.items()},
    }
    return type(title, (ContractModel,), body)
