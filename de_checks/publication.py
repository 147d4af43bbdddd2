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
from de_resources.delta.publish.publication import vanished
from de_resources.delta.publish.windows import WINDOWS
from de_resources.delta.publish.writer import FINDINGS, PUBLISHED, STAGED_VERSION, STATE, VERDICT
from de_resources.delta.slices import Slice, make_slice

NAME = "is_published"
"""How the check is called."""


def publication_check(asset: Subject) -> dg.AssetChecksDefinition:
    """A blocking check, per partition key, that the audits of `AuditedPublish` let the key be published.

    Reads the metadata of materialisations, and looks whether the published files are there: by the resource `lake`, without an
    engine. Metadata of a verdict: the staged version that was judged, and what each audit found; `files_gone` where somebody
    has vacuumed the stage, which no store refuses. A person publishes a key that was held for nothing by `de publish`, which
    records the reason and passes the check. A rerun of the partition is judged again.

    Of an asset whose windows are audited (`AuditedWindows`) it is one verdict: bad as long as a window is held, with what the
    audits found of each. It does not block, for readers of such a table see the windows that passed, and wait for no other.
    """

    def judge(run: CheckRun, key: Key, current: Materialized) -> Verdict:
        verdict = judged(current.metadata)
        gone = vanished(run.table(), _slice(run, key)) if verdict.passed else 0
        return verdict if not gone else _unreadable(verdict, gone)

    return check_per_key(
        asset,
        NAME,
        key_by_key(judge),
        description="The audits let readers see what was computed.",
        patterns=["audit_write_audit_publish"],
        blocking=WINDOWS not in spec_of(asset).metadata,
        resources=["lake"],
    )


def _slice(run: CheckRun, key: Key) -> Slice | None:
    if key is None or run.asset.partitions_def is None:
        return None
    return make_slice([key], run.asset.partitions_def, run.asset.metadata["partition_expr"])


def _unreadable(verdict: Verdict, gone: int) -> Verdict:
    told = (
        f"{gone:,} of the files that readers are shown are gone: somebody has vacuumed the stage around the platform. "
        "Materialise the partition again."
    )
    return Verdict(False, told, {**verdict.metadata, "files_gone": gone})


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
