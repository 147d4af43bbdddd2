"""The resources of both code locations' worlds: which engine, which lake, which services. All of it by configuration."""

from typing import Any

import dagster as dg
from dagster_delta import LocalConfig

from de_assets import __version__
from de_assets.sources.landing_zone import LandingZone
from de_resources.csv_files import CsvFolders, CsvLake
from de_resources.delivery.receiver import BulkReceiver
from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.enrichment.api import EnrichmentApi
from de_resources.kafka import KafkaBroker
from de_resources.lake import Lake
from de_resources.other_location import OtherLocation
from de_resources.postgres import PostgresDatabase
from de_resources.postgres.weekly import WeeklyTables
from de_resources.proxy.catalogue_view import CatalogueViewIOManager
from de_resources.proxy.io_manager import ProxyDeltaIOManager
from de_resources.replication.lake import ReplicaDeltaIOManager, ReplicaLake
from de_resources.settings import Settings
from de_resources.spark import SparkEngine


def resources(settings: Settings | None = None, engine: SparkEngine | None = None) -> dict[str, object]:
    """Resources by key. Nothing is started or connected before an asset uses it."""
    settings = settings or Settings.from_environment()
    engine = engine or SparkEngine()
    storage, database = LocalConfig(), PostgresDatabase()
    landing, broker = str(settings.landing), KafkaBroker()
    tables: dict[str, Any] = {"storage_options": storage, "spark": engine, "job_version": __version__}
    staging: dict[str, Any] = {
        "root_uri": settings.staging_root,
        "storage_options": storage,
        "spark": engine,
        "apart_from": [settings.lake_root, landing],
    }
    return {
        "spark": engine,
        "io_manager": SparkDeltaIOManager(root_uri=settings.lake_root, **tables),
        "proxy_io_manager": ProxyDeltaIOManager(root_uri=settings.lake_root, **tables),
        "view_io_manager": CatalogueViewIOManager(root_uri=settings.lake_root, spark=engine),
        "lake": Lake(root_uri=settings.lake_root, storage_options=storage, spark=engine),
        "exports": CsvFolders(root_uri=settings.lake_root),
        "csv_lake": CsvLake(root_uri=settings.lake_root, spark=engine),
        # What one step of an asset tells the next: names and figures on the disk, where a re-execution finds them.
        "facts": dg.FilesystemIOManager(base_dir=str(settings.home / "facts")),
        "landing": LandingZone(root=landing),
        "broker": broker,
        "database": database,
        "partner": BulkReceiver(),
        "geo": EnrichmentApi(),
        "dashboards": OtherLocation(location="dashboards"),
        "weekly_tables": WeeklyTables(database=database, spark=engine),
        "staging_io_manager": ReplicaDeltaIOManager(**staging, job_version=__version__),
        "staging_lake": ReplicaLake(**staging),
        # Staging has a broker of its own where one is configured here; on one machine it is the same.
        "staging_broker": broker,
    }
