"""Is what was computed what readers see? The verdict of the audits, as a check on the materialisation that they judged.

Pattern *Audit-Write-Audit-Publish*. The audits judge before anything is shown, so that the materialisation is recorded after
them; the check reads their verdict from it and is aimed at it. It holds back what is downstream, partition by partition.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_checks.factory import CheckRun, check_per_key, key_by_key
from de_checks.per_key import Key, Materialized, Verdict
from de_checks.subject import Subject, spec_of
from de_resources.delta.publish.windows import WINDOWS
from de_resources.delta.publish.writer import FINDINGS, PUBLISHED, STAGED_VERSION, STATE, VERDICT

NAME = "is_published"
"""How the check is called."""


def publication_check(asset: Subject) -> dg.AssetChecksDefinition:
    """A blocking check, per partition key, that the audits of `AuditedPublish` let the key be published.

    Reads the metadata of materialisations: no engine, no table is touched. Metadata of a verdict: the staged version that
    was judged, and what each audit found. A person publishes a key that was held for nothing by `de publish`, which records the
    reason and passes the check. A rerun of the partition is judged again.

    Of an asset whose windows are audited (`AuditedWindows`) it is one verdict: bad as long as a window is held, with what the
    audits found of each. It does not block, for readers of such a table see the windows that passed, and wait for no other.
    """

    def judge(_run: CheckRun, _key: Key, current: Materialized) -> Verdict:
        return judged(current.metadata)

    return check_per_key(
        asset,
        NAME,
        key_by_key(judge),
        description="The audits let readers see what was computed.",
        patterns=["audit_write_audit_publish"],
        blocking=WINDOWS not in spec_of(asset).metadata,
    )


def judged(metadata: Mapping[str, Any]) -> Verdict:
    """The verdict on one materialisation."""
    state = metadata.get(STATE)
    if state is None:
        told = "The materialisation does not say what its audits found. Materialise the partition again."
        return Verdict(False, told)
    figures: dict[str, Any] = {}
    if FINDINGS in metadata:
        figures["audits"] = dg.MetadataValue.md(metadata[FINDINGS])
    if STAGED_VERSION in metadata:
        figures["staged_version"] = metadata[STAGED_VERSION]
    figures |= {
        name: metadata[f"{WINDOWS}/{name}"] for name in ("shown", "held", "open") if f"{WINDOWS}/{name}" in metadata
    }
    if state == PUBLISHED:
        return Verdict(True, str(metadata[VERDICT]), figures)
    return Verdict(False, f"Held; readers see what they saw. {metadata[VERDICT]}", figures)
