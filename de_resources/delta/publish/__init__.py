"""Audit-Write-Audit-Publish: rows are staged where no reader looks, judged, and shown by a commit that writes no row.

    @dg.asset(metadata={"partition_expr": "day", "writer": "de_resources.delta.publish:AuditedPublish",
                        "audits": "shop.audits:ORDERS"})

The table that readers know is an ordinary Delta table. Below it, in `_staged`, lies another one, which every run writes first.
What the audits let pass is published by one commit to the readers' table: it names the staged files of the slice in place of
those that were shown before. No row is copied to publish, and none to take a publication back.
"""

from de_resources.delta.publish.audits import (
    Audit,
    InputRows,
    InputSize,
    KeepsContract,
    Measured,
    NullShare,
    ReconcilesWithInput,
    Rows,
    Within,
)
from de_resources.delta.publish.stream_writer import AuditedWindows
from de_resources.delta.publish.windows import Windows
from de_resources.delta.publish.writer import AuditedPublish

__all__ = [
    "Audit",
    "AuditedPublish",
    "AuditedWindows",
    "InputRows",
    "InputSize",
    "KeepsContract",
    "Measured",
    "NullShare",
    "ReconcilesWithInput",
    "Rows",
    "Windows",
    "Within",
]
