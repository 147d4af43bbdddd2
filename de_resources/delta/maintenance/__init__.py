"""What keeps a table in shape: compaction, restore."""

from de_resources.delta.maintenance.compaction import EmptyTable, Report, compact, insist, maintain, vacuum

__all__ = ["EmptyTable", "Report", "compact", "insist", "maintain", "vacuum"]
