"""Constraints Enforcer: rules and references of a contract as constraints of a PostgreSQL table, kept as the contract has them.

What a column must have is in its type (`NOT NULL`), and what identifies a row is the primary key (`postgres.presence`). The
rest is here: CHECKs, in which no NULL passes by accident, and foreign keys, which are looked at when the transaction commits.

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
from psycopg2.sql import SQL, Composed, Identifier

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
_REFERENCE = """
    SELECT own.attname, n.nspname, r.relname, their.attname
    FROM pg_constraint c JOIN pg_class r ON r.oid = c.confrelid JOIN pg_namespace n ON n.oid = r.relnamespace
    JOIN pg_attribute own ON own.attrelid = c.conrelid AND own.attnum = c.conkey[1]
    JOIN pg_attribute their ON their.attrelid = c.confrelid AND their.attnum = c.confkey[1]
    WHERE c.conrelid = to_regclass(%s) AND c.conname = %s AND c.contype = 'f'
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
    return tuple((named(name), text) for name, text in (checks | keys).items())


def violated(contract: Contract, rule: Rule) -> str:
    """SQL of PostgreSQL that is true for a row that breaks the rule; never NULL. Raises `NotForPostgres`."""
    if rule.check == "present":
        return f"{quoted_identifier(rule.columns[0])} IS NULL"
    return f"NOT coalesce({_check(contract, rule).removeprefix('CHECK ')}, FALSE)"


def named(rule: str) -> str:
    """The name of the constraint that keeps a rule."""
    return f"{CONSTRAINT}{rule}"[:_NAME_BYTES]


def enforce(statement: cursor, table: Identifier, constraints: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Give a table that exists the constraints of its contract; a look where it has them. Loads of others wait meanwhile.

    Where rows of the table break one, it holds for new rows only: such rules are returned with the number of these rows, and
    a warning says so; no value of a row is told. It is looked at again by the next load.
    """
    name = table.as_string(statement)
    statement.execute(_PRESENT, (name, f"{CONSTRAINT}%"))
    present = {constraint: (text, valid) for constraint, text, valid in statement.fetchall()}
    declared, blocked = dict(constraints), dict[str, int]()
    for gone in present.keys() - {c for c, text in declared.items() if present.get(c, ("",))[0] == text}:
        statement.execute(SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(table, Identifier(gone)))
        del present[gone]
    for constraint, text in declared.items():
        if constraint not in present:
            _add(statement, table, constraint, text)
        if not present.get(constraint, ("", False))[1] and (rows := _validate(statement, table, constraint, text)):
            blocked[constraint.removeprefix(CONSTRAINT)] = rows
    return blocked


def _add(statement: cursor, table: Identifier, constraint: str, text: str) -> None:
    names = {"table": table, "name": Identifier(constraint)}
    # The text is compiled from quoted names and typed literals, or was found to hold nothing else.
    add = SQL("ALTER TABLE {table} ADD CONSTRAINT {name} " + _verbatim(text) + " NOT VALID")
    statement.execute(add.format(**names))
    statement.execute(SQL("COMMENT ON CONSTRAINT {name} ON {table} IS %s").format(**names), (text,))


def _validate(statement: cursor, table: Identifier, constraint: str, text: str) -> int:
    """Let it hold for the rows that are there, unless some break it; returns how many."""
    if text.startswith("CHECK "):
        count = SQL("SELECT count(*) FROM {} WHERE NOT " + _verbatim(text.removeprefix("CHECK "))).format(table)
    else:
        count = _dangling(statement, table, constraint)
    statement.execute(count)
    ((rows,),) = statement.fetchall()
    if rows:
        said = "`%s` has %d rows that break `%s`, which holds for new rows only."
        _log.warning(said, ".".join(table.strings), rows, constraint)
        return int(rows)
    statement.execute(SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(table, Identifier(constraint)))
    return 0


def _dangling(statement: cursor, table: Identifier, constraint: str) -> Composed:
    """The question how many rows refer to nothing, by what the database knows of the foreign key."""
    statement.execute(_REFERENCE, (table.as_string(statement), constraint))
    ((own, *target, their),) = statement.fetchall()
    question = SQL(
        "SELECT count(*) FROM {} AS own WHERE own.{} IS NOT NULL "
        "AND NOT EXISTS (SELECT FROM {} AS their WHERE their.{} = own.{})"
    )
    return question.format(table, Identifier(own), Identifier(*target), Identifier(their), Identifier(own))


def _verbatim(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


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
