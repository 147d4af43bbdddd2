"""The systems outside, as external assets: where lineage begins, who owns it there, and where it is looked for.

Metadata `source/table`, `source/topic`, `source/capture` and `source/folder` name what has to be there before anything can be
read; `filling.sources` looks. `contract` is that of a topic's records.
"""

import dagster as dg
from pandera.pyspark import DataFrameModel

from de_assets.contracts.topics import AdRecord, ReleaseRecord, UserChangeRecord, VisitRecord
from de_assets.partitions import hourly
from de_assets.sources import topics
from de_assets.sources.capture import USERS_CAPTURE
from de_assets.sources.landing import DEVICES, VISITS
from de_resources.contract import Contract

LANDED_VISITS = dg.AssetKey(["sources", "landed_visits"])
DEVICES_DROP = dg.AssetKey(["sources", "devices_drop"])
VISITS_TOPIC = dg.AssetKey(["sources", "visits_topic"])
ADS_TOPIC = dg.AssetKey(["sources", "ads_topic"])
FEATURES_TOPIC = dg.AssetKey(["sources", "features_topic"])
USERS_TOPIC = dg.AssetKey(["sources", "users_topic"])
USERS_TABLE = dg.AssetKey(["sources", "users_table"])
LEGACY_VISITS_TABLE = dg.AssetKey(["sources", "legacy_visits_table"])
LEGACY_VISITS_RELATION = "legacy_visits"
"""The name of that table in the database."""
ACCESS_LOG = dg.AssetKey(["sources", "access_log"])


def _external(key: dg.AssetKey, description: str, owner: str, kind: str, **more: object) -> dg.AssetSpec:
    return dg.AssetSpec(key, description=description, owners=[owner], kinds={kind}, group_name="sources", **more)  # type: ignore[arg-type]


def _records(model: type[DataFrameModel]) -> dict[str, object]:
    """What the records of a topic are: by their contract, whose versions are compared as those of datasets are."""
    contract = Contract.of(model)
    return {"contract": contract.path, "dagster/column_schema": contract.table_schema()}


systems = [
    _external(
        ACCESS_LOG,
        "Access logs of the blog's web server, Apache or nginx combined format. Landed by hour by `de run --log`.",
        "team:web",
        "file",
    ),
    _external(
        LANDED_VISITS,
        "Visits as JSON lines in `landing/visits/date=…/hour=…`, complete when the folder holds `_SUCCESS`.",
        "team:web",
        "json",
        partitions_def=hourly,
        deps=[ACCESS_LOG],
        metadata={"source/folder": VISITS},
    ),
    _external(
        DEVICES_DROP,
        "The provider's complete dump of devices in `landing/devices`, complete when the folder holds `_SUCCESS`.",
        "team:reference-data",
        "json",
        metadata={"source/folder": DEVICES},
    ),
    _external(
        VISITS_TOPIC,
        "The topic `visits`: live page views, keyed by visit, append time set by the broker.",
        "team:web",
        "kafka",
        metadata={"source/topic": topics.VISITS, **_records(VisitRecord)},
    ),
    _external(
        ADS_TOPIC,
        "The topic `ads`: advertisements as they are shown on pages, keyed by page, append time set by the broker.",
        "team:web",
        "kafka",
        metadata={"source/topic": topics.ADS, **_records(AdRecord)},
    ),
    _external(
        FEATURES_TOPIC,
        "The topic `features`: release notifications as CloudEvents; each starts a run.",
        "team:product",
        "kafka",
        metadata={"source/topic": topics.FEATURES, **_records(ReleaseRecord)},
    ),
    _external(
        USERS_TABLE,
        "The table `users` of the accounts database, with its history kept by a trigger.",
        "team:accounts",
        "postgres",
        metadata={"source/table": "users"},
    ),
    _external(
        USERS_TOPIC,
        "The topic `users`: every change of the table of users, relayed by the service `capture`.",
        "team:accounts",
        "kafka",
        deps=[USERS_TABLE],
        metadata={"source/topic": topics.USERS, "source/capture": USERS_CAPTURE.name, **_records(UserChangeRecord)},
    ),
    _external(
        LEGACY_VISITS_TABLE,
        "The table `legacy_visits` of the previous system.",
        "team:legacy",
        "postgres",
        metadata={"source/table": LEGACY_VISITS_RELATION},
    ),
]
