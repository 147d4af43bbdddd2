"""A dataset's contract: one pandera model, compiled into everything that needs to know about its columns.

The model (a `ContractModel`, or a plain `pandera.pyspark.DataFrameModel`) is the only place where columns, types,
documentation, nullability, value rules, keys, owner and personal-data tags are written down:

    class Visits(ContractModel):
        \"\"\"One row per page view.\"\"\"
        visit_id: T.StringType = pa.Field(nullable=False, description="Identity of the page view")
        email: T.StringType = pa.Field(nullable=True, description="…", metadata={"personal": True})

        class Config:
            name = "silver.visits"
            metadata = {"owner": "team:web", "key": ["visit_id"], "partitioned_by": ["event_hour"],
                        "rules": {"ends_after_start": "ended_at >= started_at"}}

A dataset that keeps deleted rows says for how long in `Config.metadata["deleted_days"]`; how soon its data comes, in
`Config.metadata["freshness"]` (`contract.freshness`); how soon its work is done, in `Config.metadata["sla"]` (`contract.sla`);
up to what age it takes late rows in, in `Config.metadata["late_for"]` (`contract.lateness`).

`Contract.of(Model)` compiles it into a Spark schema, row rules as SQL predicates (for counters, examples and
constraints), the column schema that Dagster's UI shows, and redaction. Assets name their contract by import path in
their metadata (`{"contract": "package.module:Model"}`), which keeps the metadata readable and serialisable.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any

import dagster as dg
from pandera.pyspark import DataFrameModel
from pyspark.sql.types import DataType, StructField, StructType

from de_resources.contract.compatibility import Mode
from de_resources.contract.freshness import Freshness
from de_resources.contract.lateness import lateness
from de_resources.contract.model import options_of, row_rules
from de_resources.contract.rules import Rule, column_rules
from de_resources.contract.sla import Sla
from de_resources.errors import PermanentError

REDACTED = "•••"
ROWS = "rows"  # counted beside the rules, and so no name for a rule
CONSTRAINT = "contract_"
"""How the names of a contract's constraints begin: all others of a table are somebody else's."""


class AmbiguousRule(PermanentError):
    """Two rules of one contract with the same name, or one whose name is taken: their counts would run together."""

    def __init__(self, contract: str, rule: str) -> None:
        self.contract, self.rule = contract, rule
        super().__init__(
            f"The contract `{contract}` has more than one rule `{rule}`, or uses the reserved name `{ROWS}`. "
            "Rename the rule in `Config.metadata['rules']`."
        )


class UnknownMode(PermanentError):
    """A contract whose `compatibility` is no mode."""

    def __init__(self, contract: str, said: str) -> None:
        self.contract, self.said = contract, said
        super().__init__(f"The contract `{contract}` has the compatibility {said!r}. It can be {', '.join(Mode)}.")


@dataclass(frozen=True)
class Column:
    """One column: type, documentation, and whether it may be null or holds personal data."""

    name: str
    type: DataType
    description: str
    nullable: bool
    personal: bool
    constraints: tuple[str, ...] = ()
    has_default: bool = False


@dataclass(frozen=True)
class Contract:
    """What a dataset promises. `key` identifies a row; `partitioned_by` is the physical layout.

    `references`: by column, the key of another dataset (`layer.dataset.column`) in which its values have to be.
    `compatibility`: with whom a change of the columns has to get along (`contract.versions`).
    `consumers`: who reads it outside of the graph, and so is known to no lineage.
    """

    name: str
    description: str
    owner: str
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    key: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    deleted_days: float | None = None
    """For how many days a deleted row is kept where it could come back; None: for good."""
    references: Mapping[str, str] = field(default_factory=dict)
    compatibility: Mode = Mode.FULL_TRANSITIVE
    sla: Sla | None = None
    """How soon work is promised to be done."""
    consumers: tuple[str, ...] = ()
    freshness: Freshness | None = None
    """How soon data is promised to come."""
    late_for: timedelta | None = None
    """How long after its time a partition still takes in what comes late; None: nothing is promised."""
    model: type[DataFrameModel] | None = None

    @classmethod
    def of(cls, model: type[DataFrameModel]) -> Contract:
        """Compile a pandera model. Raises `UnknownRule` for a check without SQL, `AmbiguousRule` for a name twice."""
        return _compile(model)

    @classmethod
    def load(cls, path: str) -> Contract:
        """Compile the model named by `package.module:Model`."""
        return _compile(_import(path))

    @property
    def path(self) -> str:
        """The import path by which assets name this contract."""
        assert self.model is not None  # noqa: S101 - only contracts compiled from a model have a path
        return f"{self.model.__module__}:{self.model.__qualname__}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns in their declared order."""
        return tuple(c.name for c in self.columns)

    @property
    def personal(self) -> frozenset[str]:
        """The columns that hold personal data."""
        return frozenset(c.name for c in self.columns if c.personal)

    def struct_type(self) -> StructType:
        """The Spark schema. Every field is nullable: nulls are judged by rules, which name and count them all."""
        return StructType([StructField(c.name, c.type, True, {"comment": c.description}) for c in self.columns])

    def constraints(self) -> dict[str, str]:
        """Every rule as a CHECK that a store enforces: name and SQL, in Spark's dialect. A null passes none by accident.

        Raises `AmbiguousRule` for two names that a store, which does not know case, takes for one.
        """
        _require_distinct(self.name, [r.name.lower() for r in self.rules])
        return {f"{CONSTRAINT}{r.name.lower()}": r.constraint for r in self.rules}

    def table_schema(self) -> dg.TableSchema:
        """The column schema for Dagster's UI, with documentation, constraints and personal-data tags."""
        return dg.TableSchema(columns=[_table_column(c, self.key, self.unique_within) for c in self.columns])

    @property
    def unique_within(self) -> tuple[str, ...]:
        """The columns inside whose values the key is unique, where that is not the whole table: what a run can look at."""
        return () if set(self.partitioned_by) & set(self.key) else self.partitioned_by

    def redact(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Copy of a row in which personal values are masked; nulls stay visible as nulls."""
        return {k: REDACTED if k in self.personal and v is not None else v for k, v in row.items()}


def _import(path: str) -> type[DataFrameModel]:
    module, _, name = path.partition(":")
    model: type[DataFrameModel] = getattr(importlib.import_module(module), name)
    return model


@lru_cache(maxsize=256)
def _compile(model: type[DataFrameModel]) -> Contract:
    schema = model.to_schema()
    options = options_of(model)
    name = str(schema.name)
    columns, rules = [], []
    for column_name, column in schema.columns.items():
        own = list(column_rules(name, column_name, column))
        rules += own
        columns.append(
            Column(
                name=column_name,
                type=column.dtype.type,
                description=column.description or "",
                nullable=bool(column.nullable),
                personal=bool((column.metadata or {}).get("personal")),
                constraints=tuple(r.label for r in own if r.label),
                has_default="default" in (column.metadata or {}),
            )
        )
    rules += row_rules(model)
    _require_distinct(name, [r.name for r in rules])
    return Contract(
        name=name,
        description=inspect.cleandoc(model.__doc__ or ""),
        owner=options.get("owner", ""),
        columns=tuple(columns),
        rules=tuple(rules),
        key=tuple(options.get("key", ())),
        partitioned_by=tuple(options.get("partitioned_by", ())),
        properties=dict(options.get("properties", {})),
        deleted_days=options.get("deleted_days"),
        references=dict(options.get("references", {})),
        compatibility=_mode(name, options.get("compatibility", Mode.FULL_TRANSITIVE)),
        sla=Sla.of(name, options.get("sla")),
        consumers=tuple(options.get("consumers", ())),
        freshness=Freshness.of(options.get("freshness")),
        late_for=lateness(name, options.get("late_for")),
        model=model,
    )


def _mode(contract: str, said: str) -> Mode:
    try:
        return Mode(said)
    except ValueError:
        raise UnknownMode(contract, said) from None


def _require_distinct(contract: str, names: list[str]) -> None:
    taken = {ROWS}
    for name in names:
        if name in taken:
            raise AmbiguousRule(contract, name)
        taken.add(name)


def _table_column(column: Column, key: tuple[str, ...], within: tuple[str, ...]) -> dg.TableColumn:
    is_key = key == (column.name,)
    inside = [f"unique within {', '.join(within)}"] if is_key and within else []
    return dg.TableColumn(
        name=column.name,
        type=column.type.simpleString(),
        description=column.description,
        constraints=dg.TableColumnConstraints(
            nullable=column.nullable,
            unique=is_key and not within,
            other=[*column.constraints, *inside],
        ),
        tags={"personal": ""} if column.personal else None,
    )
