"""Wrapper: computed columns and the original record in one envelope, in one of four layouts, and back.

| layout           | the record's columns           | the computed columns        |
|------------------|--------------------------------|-----------------------------|
| `ComputedNested` | as they came                   | in one struct               |
| `RawNested`      | in one struct                  | by their names              |
| `Flat`           | as they came                   | by their names and a prefix |
| `TwoTables`      | as they came, in their table   | with the key, in another    |

Each layout has `wrap`, `unwrap` (the original record, exactly) and `computed` (the computed columns, which are the same in
every layout). No value of a record goes through a function: what was parsed and written again is another text. `computed`
selects and does not look at the record, so that a reader of a columnar file does not read its bytes.

Source: pattern *Wrapper*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier

Computed = Mapping[str, Column]
"""What is computed, by name: expressions over the record's columns, one value for each record."""
_KEY, _COPIES = "__de_k_", "__de_copies"


class NameTaken(PermanentError):
    """Two columns of one table, or two fields of one struct, would have one name; stores do not know case."""

    def __init__(self, name: str, advice: str) -> None:
        self.name = name
        super().__init__(f"Two columns would be named `{name}`: {advice}. Nothing was wrapped.")


class WrongColumns(PermanentError):
    """A frame is not what the layout says: it lacks columns, or has some that are neither the record's nor computed."""

    def __init__(self, what: str, missing: Sequence[str], unexpected: Sequence[str] = ()) -> None:
        self.missing, self.unexpected = tuple(missing), tuple(unexpected)
        wrong = {"lacks": missing, "also has": unexpected}
        told = " and ".join(f"{how} {_listed(names)}" for how, names in wrong.items() if names)
        super().__init__(f"{what} {told}. Name the columns as they are; what is wrapped is not wrapped again.")


class Tables(NamedTuple):
    """The frames of `TwoTables`: the records, and per record its key with the computed columns."""

    original: DataFrame
    computed: DataFrame


@dataclass(frozen=True)
class ComputedNested:
    """The record's columns as they came, and beside them one struct with the computed ones.

    What somebody adds to the table beside the struct counts as the record's. Wrapping twice raises `NameTaken`.
    """

    column: str = "computed"
    """The name of the struct."""

    def wrap(self, records: DataFrame, computed: Computed) -> DataFrame:
        """One row per record. Raises `NameTaken` for a column of the record that has the name of the struct."""
        values = _expressions(computed)
        _require_names([*records.columns, self.column], "it is wrapped already, or the struct needs another `column`")
        return records.select(*_columns(records.columns), F.struct(*values).alias(self.column))

    def unwrap(self, table: DataFrame) -> DataFrame:
        """The records of these rows. Raises `WrongColumns` for a table without the struct."""
        _require_columns(table, [self.column])
        return table.select(*_columns(name for name in table.columns if name != self.column))

    def computed(self, table: DataFrame) -> DataFrame:
        """The computed columns of these rows. Raises `WrongColumns` for a table without the struct."""
        return _fields(table, self.column)


@dataclass(frozen=True)
class RawNested:
    """The computed columns by their names, and beside them one struct with the record. Wrapping twice raises `NameTaken`."""

    column: str = "raw"
    """The name of the struct."""

    def wrap(self, records: DataFrame, computed: Computed) -> DataFrame:
        """One row per record. Raises `NameTaken` where the record has a column, or is to get one, of the struct's name."""
        values = _expressions(computed)
        for beside in (records.columns, computed):
            _require_names([*beside, self.column], "it is wrapped already, or the struct needs another `column`")
        return records.select(*values, F.struct(*_columns(records.columns)).alias(self.column))

    def unwrap(self, table: DataFrame) -> DataFrame:
        """The records of these rows. Raises `WrongColumns` for a table without the struct."""
        return _fields(table, self.column)

    def computed(self, table: DataFrame) -> DataFrame:
        """Every column but the record. Raises `WrongColumns` for a table without the struct."""
        _require_columns(table, [self.column])
        return table.select(*_columns(name for name in table.columns if name != self.column))


@dataclass(frozen=True)
class Flat:
    """The record's columns as they came, and beside them the computed ones, each with the prefix before its name.

    Names alone tell the two apart, so the record's are declared. Wrapping twice raises `WrongColumns`.
    """

    record: tuple[str, ...]
    """The names of the record's columns, in their order."""
    prefix: str = "computed_"
    """May be empty where the names are clear without it."""

    def __post_init__(self) -> None:
        if not self.record:
            raise ValueError("a flat layout without the record's columns: name them in `record`")

    def wrap(self, records: DataFrame, computed: Computed) -> DataFrame:
        """One row per record.

        Raises `NameTaken` for a computed column that would have the name of one of the record, and `WrongColumns` for a
        record that has others than those declared.
        """
        unexpected = [name for name in records.columns if name not in self.record]
        _require_columns(records, self.record, "The record", unexpected)
        prefixed = {self.prefix + name: value for name, value in computed.items()}
        values = _expressions(prefixed)
        _require_names([*self.record, *prefixed], "give the computed ones another `prefix`, or nest them")
        return records.select(*_columns(self.record), *values)

    def unwrap(self, table: DataFrame) -> DataFrame:
        """The records of these rows. Raises `WrongColumns` for a table that lacks a column of the record."""
        _require_columns(table, self.record)
        return table.select(*_columns(self.record))

    def computed(self, table: DataFrame) -> DataFrame:
        """The columns with the prefix, without it, that are not the record's. Raises `WrongColumns` as `unwrap` does."""
        _require_columns(table, self.record)
        names = [name for name in table.columns if name not in self.record and name.startswith(self.prefix)]
        return table.select(*(F.col(identifier(name)).alias(name.removeprefix(self.prefix)) for name in names))


@dataclass(frozen=True)
class TwoTables:
    """The records in one table; their key and the computed columns in another.

    The key is of the record, and of what is stored: the two frames are computed one after the other, and a key that is made
    on the way (`uuid()`) would be another in each. Wrapping the table of the records again gives the same two tables.
    Nothing makes two writes one: write the records first, so that no computed row is without its record.
    """

    key: tuple[str, ...]
    """Names of the record's columns that tell one record from all others."""

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("two tables without a key: name the columns in `key` that tell one record from all others")

    def wrap(self, records: DataFrame, computed: Computed) -> Tables:
        """One row per record in each table; both fail while they are written at the first record whose key is null.

        That a key comes twice is found by `unwrap`, and by a `unique_key_check`: here it would cost a shuffle. Raises
        `NameTaken` for a computed column named like one of the key, and `WrongColumns` for a record without the key.
        """
        _require_columns(records, self.key, "The record")
        values = _expressions(computed)
        _require_names(records.columns, "rename one")
        _require_names([*self.key, *computed], "the key is in both tables; give the computed one another name")
        original = [self._filled(records, name) for name in records.columns]
        key = [self._filled(records, name) for name in self.key]
        return Tables(records.select(*original), records.select(*key, *values))

    def unwrap(self, tables: Tables) -> DataFrame:
        """The records of the rows in `tables.computed`, which may be some of them. Joins by key; a batch, not a stream.

        Fails while it is read where a row has no record, and where a key comes twice in one of the tables: the join would
        have multiplied it. Raises `WrongColumns` for a table without the key.
        """
        _require_columns(tables.original, self.key)
        _require_columns(tables.computed, self.key)
        wanted = tables.computed.select(*(F.col(identifier(name)).alias(_KEY + name) for name in self.key))
        rows, records = _once(wanted, [_KEY + name for name in self.key]), _once(tables.original, self.key)
        same = [F.col(identifier(_KEY + name)) == F.col(identifier(name)) for name in self.key]
        found = F.col(identifier(self.key[0])).isNotNull()
        joined = rows.join(records, same, "left").where(
            _or_fail(found, F.lit(True), "a row has no record with its key")
        )
        return joined.select(*_columns(tables.original.columns))

    def computed(self, tables: Tables) -> DataFrame:
        """The computed columns without the key. Raises `WrongColumns` for a table without the key."""
        _require_columns(tables.computed, self.key)
        return tables.computed.select(*_columns(name for name in tables.computed.columns if name not in self.key))

    def _filled(self, records: DataFrame, name: str) -> Column:
        """The column, which fails at a null if it is of the key.

        Not a filter: that may be pushed below the frame's own filters, and would refuse rows that these remove.
        """
        column, field = F.col(identifier(name)), records.schema[name]
        if name not in self.key or not field.nullable:
            return column
        filled = _or_fail(
            column.isNotNull(), column, f"the key `{name}` is null in a record: it could not be found again"
        )
        return filled.alias(name, metadata=field.metadata)


Layout = ComputedNested | RawNested | Flat | TwoTables
"""How computed columns and the record lie together."""


def _columns(names: Iterable[str]) -> list[Column]:
    return [F.col(identifier(name)) for name in names]


def _expressions(computed: Computed) -> list[Column]:
    if not computed:
        raise ValueError("nothing is computed, so that there is nothing to wrap: name one column at least")
    _require_names(list(computed), "rename one")
    return [value.alias(name) for name, value in computed.items()]


def _fields(table: DataFrame, struct: str) -> DataFrame:
    _require_columns(table, [struct])
    return table.select(F.col(f"{identifier(struct)}.*"))


def _once(table: DataFrame, key: Sequence[str]) -> DataFrame:
    """The same rows, which fail at a key that comes twice. The shuffle is the one that the join needs as well."""
    copies = F.count(F.lit(1)).over(Window.partitionBy(*_columns(key)))
    single = _or_fail(F.col(_COPIES) == 1, F.lit(True), "a key comes twice in one of the tables")
    return table.withColumn(_COPIES, copies).where(single).drop(_COPIES)


def _or_fail(holds: Column, value: Column, says: str) -> Column:
    # Without the value that is at fault: it may be personal, and errors are logged.
    return F.when(holds, value).otherwise(F.raise_error(F.lit(f"Wrapper: {says}.")))


def _require_columns(
    table: DataFrame, wanted: Sequence[str], what: str = "The table", unexpected: Sequence[str] = ()
) -> None:
    missing = [name for name in wanted if name not in table.columns]
    if missing or unexpected:
        raise WrongColumns(what, missing, unexpected)


def _require_names(names: Sequence[str], advice: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise NameTaken(name, advice)
        seen.add(name.lower())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
