"""What was committed to a table: read from its transaction log, without an engine."""

from de_resources.delta.log.table_log import Commit, Stored, TableLog

__all__ = ["Commit", "Stored", "TableLog"]
