"""What makes the database itself refuse to take a promised column away: an event trigger, put there by the set-up.

Whoever drops, renames or retypes a column that stands in `contracts.protected`, or drops its table or view, is refused,
whatever role he has. What stands there the platform keeps (`de_resources.postgres.protection`). Its own sessions, which compare
contracts before they change a table, say `de.platform = on`, and are let through; then the list follows what they change.

It guards against mistakes, and not against who sets the setting himself. Only a superuser can make event triggers: hence the
set-up.

Source: pattern *Schema Compatibility Enforcer*; PostgreSQL's manual, "Event Triggers".
"""

from __future__ import annotations

from psycopg2.extensions import connection
from psycopg2.sql import SQL, Identifier

SETTING = "de.platform"
SCHEMA = "contracts"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('contracts: guard', 0))"
_LIST = """
    CREATE SCHEMA IF NOT EXISTS contracts;
    CREATE TABLE IF NOT EXISTS contracts.protected (relation oid, column_name name, type text NOT NULL, name text NOT NULL,
        contract text NOT NULL, readers text[] NOT NULL, PRIMARY KEY (relation, column_name));
    GRANT USAGE ON SCHEMA contracts TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON contracts.protected TO {role};
"""
# Owned by the superuser and run as such: who changes a table need not be allowed to read the list. Names are looked up in
# the system's catalogue only, whatever the session's search path is.
_FUNCTION = """
    CREATE OR REPLACE FUNCTION contracts.refuse() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $guard$
    DECLARE
        lost record;
    BEGIN
        IF current_setting('de.platform', true) = 'on' THEN
            DELETE FROM contracts.protected p WHERE NOT EXISTS (SELECT FROM contracts.state s
                WHERE s.relation = p.relation AND s.column_name = p.column_name);
            UPDATE contracts.protected p SET type = s.type, name = s.name FROM contracts.state s
                WHERE s.relation = p.relation AND s.column_name = p.column_name AND (s.type, s.name) <> (p.type, p.name);
            RETURN;
        END IF;
        IF tg_event = 'sql_drop' THEN
            SELECT p.name, p.contract, p.readers, array_agg(p.column_name ORDER BY p.column_name) AS columns INTO lost
            FROM contracts.protected p JOIN pg_event_trigger_dropped_objects() d ON d.objid = p.relation
            WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 GROUP BY 1, 2, 3 ORDER BY 1 LIMIT 1;
        ELSE
            SELECT p.name, p.contract, p.readers, array_agg(p.column_name ORDER BY p.column_name) AS columns INTO lost
            FROM contracts.protected p JOIN pg_class c ON c.oid = p.relation
            LEFT JOIN contracts.state s ON s.relation = p.relation AND s.column_name = p.column_name
            WHERE s.relation IS NULL OR (s.type, s.name) <> (p.type, p.name) GROUP BY 1, 2, 3 ORDER BY 1 LIMIT 1;
        END IF;
        IF lost.name IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                MESSAGE = format('the contract "%s" names %s of %s: no statement drops, renames or retypes that',
                    lost.contract, array_to_string(lost.columns, ', '), lost.name),
                DETAIL = format('Who reads it: %s.', coalesce(nullif(array_to_string(lost.readers, ', '), ''),
                    'nobody that is known')),
                HINT = 'Change the contract (`de contracts accept`), or add a column beside it. '
                    'SET de.platform = ''on'' lets this session do it nevertheless.';
        END IF;
    END
    $guard$;
"""
_STATE = """
    CREATE OR REPLACE VIEW contracts.state AS
    SELECT a.attrelid AS relation, a.attname AS column_name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
        n.nspname || '.' || c.relname AS name
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE a.attnum > 0 AND NOT a.attisdropped;
    GRANT SELECT ON contracts.state TO {role};
"""
_TRIGGERS = {"contracts_guard_drop": "sql_drop", "contracts_guard": "ddl_command_end"}
_KNOWN = "SELECT evtname FROM pg_event_trigger WHERE evtname = ANY(%s)"


def ensure(session: connection, role: str) -> None:
    """Put list and triggers into the session's database, where `role` is who keeps the list; the session is a superuser's.

    A rerun changes nothing but the text of the function. A server that follows another one has them from there, and
    takes no writes.
    """
    with session, session.cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        if cursor.fetchone() == (True,):
            return
        cursor.execute(_LOCK)
        for statement in (_LIST, _STATE):
            cursor.execute(SQL(statement).format(role=Identifier(role)))
        cursor.execute(_FUNCTION)
        cursor.execute(_KNOWN, (list(_TRIGGERS),))
        known = {name for (name,) in cursor.fetchall()}
        for name, event in _TRIGGERS.items():
            if name not in known:
                create = SQL("CREATE EVENT TRIGGER {} ON {} EXECUTE FUNCTION contracts.refuse()")
                cursor.execute(create.format(Identifier(name), Identifier(event)))
