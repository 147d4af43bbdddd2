"""Who may read what in the database: business readers what a contract promises, engineers the technical tables as well.

Two groups without a login, to which an administrator adds people (`GRANT de_business TO ann`). The set-up makes them
(`de_resources.local.postgres_role`). A database without them, such as one that others administer, is left as it is: there
nobody but the owner reads anything until an administrator says otherwise. A statement that adds nothing is not sent.

Source: pattern *Metadata Decorator*; PostgreSQL's manual, "Privileges".
"""

from __future__ import annotations

from psycopg2.extensions import cursor
from psycopg2.sql import SQL, Identifier

from de_resources.local.postgres_role import BUSINESS, ENGINEERS

_LACKS = """
    SELECT rolname FROM pg_roles WHERE rolname = ANY(%(roles)s) AND NOT (has_schema_privilege(oid, %(schema)s, 'USAGE')
    AND has_table_privilege(oid, to_regclass(%(relation)s), 'SELECT')) ORDER BY rolname
"""


def open_to_business(statement: cursor, relation: Identifier) -> None:
    """Let business readers and engineers read a table or view that a contract promises; it is there."""
    _grant(statement, relation, (BUSINESS, ENGINEERS))


def open_to_engineers(statement: cursor, relation: Identifier) -> None:
    """Let engineers, and no business reader, read a technical table that is there."""
    _grant(statement, relation, (ENGINEERS,))


def _grant(statement: cursor, relation: Identifier, roles: tuple[str, ...]) -> None:
    schema = Identifier(relation.strings[0])
    named = {
        "roles": list(roles),
        "schema": relation.strings[0],
        "relation": relation.as_string(statement),
    }
    statement.execute(_LACKS, named)
    for (role,) in statement.fetchall():
        grant = SQL("GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON {relation} TO {role}")
        statement.execute(grant.format(schema=schema, relation=relation, role=Identifier(role)))
