"""The provider's dump of devices as it was dropped, file by file and byte by byte.

Grain: one landed file. Patterns: Passthrough Replicator (files) and Full Loader (file to file): the replica is the last
complete drop, nothing is parsed, and a file that vanished from the drop folder vanishes here.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from de_assets.automation.triggers.polling import LOOK, changed_folder, poll
from de_assets.contracts.devices import OWNER
from de_assets.sources.landing import DEVICES, MARKER, folder_look
from de_assets.sources.landing_zone import LandingZone
from de_assets.sources.systems import DEVICES_DROP
from de_assets.staging.replica import replica
from de_checks.digest import Digests, digest_check
from de_resources.lineage.record import LINEAGE_NONE
from de_resources.replication.files import digests, synchronise
from de_resources.replication.lake import ReplicaLake
from de_resources.retries import RETRY_TRANSIENT


@dg.asset(
    retry_policy=RETRY_TRANSIENT,
    **replica("devices_raw", owner=OWNER, kind="file", patterns=["passthrough_replicator", "full_loader"]),
    deps=[DEVICES_DROP],
)
def devices_raw(
    context: dg.AssetExecutionContext, landing: LandingZone, staging_lake: ReplicaLake
) -> dg.MaterializeResult[None]:
    """Make the replica's folder hold the files of the drop folder, untouched."""
    folder, look = staging_lake.folder(context.asset_key), folder_look(landing.path / DEVICES)
    done = synchronise(landing.path / DEVICES, folder, marker=MARKER)
    return dg.MaterializeResult(
        metadata={
            "dagster/uri": str(folder),
            LOOK: look or "",
            "files": len(done.digests),
            "files_copied": len(done.copied),
            "files_removed": len(done.removed),
            "bytes_copied": done.bytes_copied,
            LINEAGE_NONE: "Files are copied byte by byte; nobody looks at columns.",
            "sha256": dg.MetadataValue.json(dict(done.digests)),
        },
    )


def _both_sides(resources: Any, _metadata: Mapping[str, Any]) -> tuple[Digests, Digests]:
    folder = resources.staging_lake.folder(devices_raw.key)
    return digests(resources.landing.path / DEVICES), digests(folder)


checks = [digest_check(devices_raw, _both_sides, resources={"landing", "staging_lake"})]
polls = [poll(devices_raw, "15 4 * * *", changed_folder(devices_raw, DEVICES), resources=["landing"])]
