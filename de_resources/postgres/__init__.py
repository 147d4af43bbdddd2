"""Tables of PostgreSQL: slices in one transaction, upserts, histories, weekly tables and versions behind views."""

from de_resources.postgres.database import (
    DatabaseMisconfigured,
    NoWriter,
    PostgresDatabase,
    RelationMissing,
    SessionLost,
)

__all__ = ["DatabaseMisconfigured", "NoWriter", "PostgresDatabase", "RelationMissing", "SessionLost"]
