"""Constraints Enforcer: rules and references of a contract as constraints of a PostgreSQL table, kept as the contract has them.

What a column must have is in its type (`NOT NULL`), and what identifies a row is the primary key. The rest is here: CHECKs, in
which no NULL passes by accident, and foreign keys, which are looked at when the transaction commits.

Each constraint carries the text it was made from as its comment, so that a look tells whether the contract has changed. One
that is new holds for new rows at once (`NOT VALID`); it holds for all as soon as the rows that were there keep it.

Source: pattern *Constraints Enforcer*; PostgreSQL's manual, `ALTER TABLE … ADD CONSTRAINT … NOT VALID`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Identifier

from de_resources.contract import CONSTRAINT, Contract
from de_resources.contract.rules import Rule, comparisons
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import quoted_identifier

_log = logging.getLogger(__name__)
_NAME_BYTES = 63
# A row rule is Spark's SQL. What both databases read the same way: columns, literals, comparisons, arithmetic, and logic.
_FOREIGN = "select|exists|any|some|all|case|cast|like|ilike|rlike|regexp|div|interval|date|timestamp"
_WORD = rf"(?!(?i:{_FOREIGN})\b)[A-Za-z_]\w*\b(?!\s*\()"
_LOGIC = r"(?i:and|or|not|in|between|is)\b"
_PLAIN = re.compile(rf"(?:\s|{_LOGIC}|{_WORD}|\d+(?:\.\d+)?|'[^'\\]*'|<>|<=|>=|[=<>+*,()-])*")
_PRESENT = """
    SELECT conname, obj_description(oid, 'pg_constraint'), convalidated FROM pg_constraint
    WHERE conrelid = to_regclass(%s) AND conname LIKE %s
"""


class NotForPostgres(PermanentError):
    """A rule whose SQL means something else in PostgreSQL, or nothing."""

    def __init__(self, contract: str, rule: str) -> None:
        self.contract, self.rule = contract, rule
        super().__init__(
            f"The rule `{rule}` of `{contract}` has no form in PostgreSQL, where it shall be a constraint. Say it with "
            "columns, literals, comparisons, arithmetic and AND, OR, NOT, IN, BETWEEN, IS NULL, or as a check of a column."
        )


def constraints_of(contract: Contract) -> tuple[tuple[str, str], ...]:
    """The constraints beyond type, presence and key, as name and definition. Raises `NotForPostgres`."""
    checks = {rule.name: _check(contract, rule) for rule in contract.rules if rule.check != "present"}
    keys = {f"{column}_reference": _reference(column, to) for column, to in contract.references.items()}
    return tuple((f"{CONSTRAINT}{name}"[:_NAME_BYTES], text) for name, text in (checks | keys).items())


def violated(contract: Contract, rule: Rule) -> str:
    """SQL of PostgreSQL that is true for a row that breaks the rule; never NULL. Raises `NotForPostgres`."""
    if rule.check == "present":
        return f"{quoted_identifier(rule.columns[0])} IS NULL"
    return f"NOT coalesce({_check(contract, rule).removeprefix('CHECK ')}, FALSE)"


def enforce(statement: cursor, table: Identifier, constraints: Sequence[tuple[str, str]]) -> None:
    """Give a table that exists the constraints of its contract; a look where it has them. Loads of others wait meanwhile.

    Where rows of the table break one, it holds for new rows only, and a warning says how many rows it is about; no value of
    a row is told. It is looked at again by the next load.
    """
    name = table.as_string(statement)
    statement.execute(_PRESENT, (name, f"{CONSTRAINT}%"))
    present = {constraint: (text, valid) for constraint, text, valid in statement.fetchall()}
    declared = dict(constraints)
    for gone in present.keys() - {c for c, text in declared.items() if present.get(c, ("",))[0] == text}:
        statement.execute(SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, Identifier(gone)))
        del present[gone]
    for constraint, text in declared.items():
        if constraint not in present:
            _add(statement, table, constraint, text)
        if not present.get(constraint, ("", False))[1]:
            _validate(statement, table, constraint, text)


def _add(statement: cursor, table: Identifier, constraint: str, text: str) -> None:
    names = {"table": table, "name": Identifier(constraint)}
    # The text is compiled from quoted names and typed literals, or was found to hold nothing else.
    add = SQL("ALTER TABLE {table} ADD CONSTRAINT {name} " + text.replace("{", "{{").replace("}", "}}") + " NOT VALID")
    statement.execute(add.format(**names))
    statement.execute(SQL("COMMENT ON CONSTRAINT {name} ON {table} IS %s").format(**names), (text,))


def _validate(statement: cursor, table: Identifier, constraint: str, text: str) -> None:
    names = {"table": table, "name": Identifier(constraint)}
    if text.startswith("CHECK "):
        count = SQL("SELECT count(*) FROM {table} WHERE NOT " + text.removeprefix("CHECK ").replace("{", "{{"))
        statement.execute(count.format(**names))
        ((rows,),) = statement.fetchall()
        if rows:
            _log.warning(
                "`%s` has %d rows that break `%s`, which holds for new rows only.",
                ".".join(table.strings),
                rows,
                constraint,
            )
            return
    statement.execute(SQL("ALTER TABLE {table} VALIDATE CONSTRAINT {name}").format(**names))


def _check(contract: Contract, rule: Rule) -> str:
    if rule.columns:
        predicate = _PREDICATES.get(rule.check)
        if predicate is None:
            raise NotForPostgres(contract.name, rule.name)
        column = quoted_identifier(rule.columns[0])
        return f"CHECK ({column} IS NULL OR {predicate(column, rule.statistics)})"
    if not _PLAIN.fullmatch(rule.predicate):
        raise NotForPostgres(contract.name, rule.name)
    return f"CHECK (coalesce({rule.predicate}, FALSE))"


def _reference(column: str, to: str) -> str:
    *table, to_column = to.split(".")
    target = f"{'.'.join(map(quoted_identifier, table))} ({quoted_identifier(to_column)})"
    return f"FOREIGN KEY ({quoted_identifier(column)}) REFERENCES {target} DEFERRABLE INITIALLY DEFERRED"


def _literal(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            return repr(value)
        case datetime() | date():
            return f"'{value.isoformat()}'"
    return "'" + str(value).replace("'", "''") + "'"


_PREDICATES = comparisons(_literal)
"""Patterns are left out: the two databases have different regular expressions."""
