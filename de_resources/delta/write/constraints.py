"""Constraints Enforcer: the rules of a contract as CHECK constraints of the Delta table, kept as the contract has them.

A table is created with its constraints, in the same commit. One that exists - made by an earlier version, or under an
earlier contract - is brought up to date by the next write. What the table has already costs a look into its log.

A rule that rows of the table break cannot become a constraint: Delta refuses it. Such a rule is named with the number of
these rows, and tried again after each write, so that a run that replaces them is all the repair that is needed.

What the store holds is not counted a second time while rows are written: a write that ended has none that breaks it.

What Delta cannot hold, keys and references, is checked: `de_checks/keys.py`.

Source: pattern *Constraints Enforcer*; Delta's `ADD CONSTRAINT … CHECK`, for which other writers need writer version 3 and
readers nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_resources.contract import CONSTRAINT
from de_resources.contract.rules import Rule
from de_resources.delta.log import TableLog
from de_resources.delta.table import CHECKS, Table
from de_resources.delta.write import frames
from de_resources.delta.write.lock import creation_lock
from de_resources.delta.write.refusals import explained
from de_resources.engine.errors import ENGINE_ERRORS, has_condition
from de_resources.sql.identifiers import identifier

BLOCKED = "constraints/blocked"
"""Metadata of a write: the rules that rows of the table break, so that the store does not enforce them yet."""
_TOKEN = re.compile(r"'[^']*'|`[^`]*`|\w+|\S")
_HAS_VIOLATIONS = "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"


def enforce(session: SparkSession, table: Table) -> dict[str, int]:
    """Give the table the constraints of its contract, and take away those that its contract no longer has.

    Returns the rules that are no constraints because rows of the table break them, with the number of these rows. One
    commit per constraint that changes; none where nothing does. The constraints of others stay. A rule about a column that
    the table is yet to gain has to wait for it. Nothing happens to a table that does not exist, or is not `enforced`.
    Raises `ConcurrentWrite`.
    """
    if not table.enforced or not _differs(table):
        return {}
    with creation_lock(table.uri, table=table.name), explained(table):
        declared, present = table.constraints(), present_in(table)
        for name in present:
            if not _same(declared.get(name), present[name]):
                session.sql(f"ALTER TABLE {table.sql} DROP CONSTRAINT {identifier(name)}")
        missing = [name for name, condition in declared.items() if not _same(present.get(name), condition)]
        return _add(session, table, missing)


def present_in(table: Table) -> dict[str, str]:
    """The constraints of the contract, present or past, that the table has: name and SQL."""
    return _present(table.log())


def held(table: Table, log: TableLog | None = None) -> frozenset[str]:
    """The rules that the store holds in the log's version, or now; none of a table that is not `enforced`.

    No row of that version breaks them: Delta looks at the rows that are there when a constraint is added, and at every row
    that is written from then on.
    """
    if not table.enforced:
        return frozenset()
    present = _present(log or table.log())
    return frozenset(rule.name for name, rule in _rules(table).items() if _same(present.get(name), rule.constraint))


def all_of(table: Table) -> frozenset[str]:
    """The rules that the store will hold from the table's first commit on."""
    return frozenset(rule.name for rule in _rules(table).values()) if table.enforced else frozenset()


def with_held(table: Table, log: TableLog, counted: frames.Counters, left_out: frozenset[str]) -> frames.Counters:
    """What a write has counted, and 0 for each rule that it left to the store.

    Unknown where the store does not hold one of these any more: somebody took it away beside the write.
    """
    rows, violations = counted
    if violations is None or not left_out:
        return counted
    if not left_out <= held(table, log):
        return rows, None
    return rows, {rule.name: violations.get(rule.name, 0) for rule in _rules(table).values()}


def told(blocked: Mapping[str, int]) -> dict[str, str]:
    """The rules that are no constraints, for the metadata of a materialisation."""
    return {BLOCKED: ", ".join(f"{rule}: {rows:,} rows" for rule, rows in blocked.items())} if blocked else {}


def _differs(table: Table) -> bool:
    """Whether there is a table, whose constraints are not those of its contract."""
    log = table.log()
    if log is None:
        return False
    declared, present = table.constraints(), _present(log)
    return declared.keys() != present.keys() or not all(_same(declared[name], present[name]) for name in declared)


def _present(log: TableLog | None) -> dict[str, str]:
    own = f"{CHECKS}{CONSTRAINT}"
    properties = log.table.metadata().configuration if log else {}
    return {
        name.removeprefix(CHECKS): sql for name, sql in properties.items() if name.startswith(own) and sql is not None
    }


def _same(one: str | None, other: str | None) -> bool:
    """Whether both say the same: Delta writes a condition that is added later with other spaces than it was given."""
    return one is not None and other is not None and _TOKEN.findall(one) == _TOKEN.findall(other)


def _add(session: SparkSession, table: Table, names: list[str]) -> dict[str, int]:
    """Add those that the table's rows allow. One pass counts the rows that break any; Delta looks once more at each."""
    rows = table.read(session)
    rules = {
        name: rule for name, rule in _rules(table).items() if name in names and _applies(rule, table, rows.columns)
    }
    if not rules:
        return {}
    counters = (F.count_if(F.expr(rule.violated)).alias(name) for name, rule in rules.items())
    broken = rows.agg(*counters).collect()[0].asDict()
    for name, rule in rules.items():
        if broken[name]:
            continue
        statement = f"ALTER TABLE {table.sql} ADD CONSTRAINT {identifier(name)} CHECK ({rule.constraint})"
        try:
            session.sql(statement)
        except ENGINE_ERRORS as error:
            # Somebody wrote such a row since they were counted.
            if not has_condition(error, _HAS_VIOLATIONS):
                raise
            broken[name] = 1
    return {rules[name].name: count for name, count in broken.items() if count}


def _rules(table: Table) -> dict[str, Rule]:
    contract = table.contract
    return dict(zip(contract.constraints(), contract.rules, strict=True)) if contract else {}


def _applies(rule: Rule, table: Table, columns: list[str]) -> bool:
    """Whether the table has the columns of a rule; a row rule does not say which, and waits for all of the contract's."""
    wanted = rule.columns or (table.contract.column_names if table.contract else ())
    return set(wanted) <= set(columns)
