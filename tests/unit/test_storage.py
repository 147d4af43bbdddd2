"""Tables lie in folders: what names an object store is refused when definitions are loaded, and never printed."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster_delta import AzureConfig, GcsConfig, LocalConfig, S3Config

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.lake import Lake
from de_resources.proxy.io_manager import ProxyDeltaIOManager
from de_resources.replication.lake import ReplicaDeltaIOManager
from de_resources.spark import SparkEngine
from de_resources.storage import NotAFolder, StorageConfig

SECRET = "canary-4f1d"


@pytest.mark.pattern("data_overwrite")
@pytest.mark.parametrize("resource", [SparkDeltaIOManager, ProxyDeltaIOManager, ReplicaDeltaIOManager, Lake])
@pytest.mark.parametrize(
    ("root", "config", "named"),
    [
        ("s3://bucket/lake", S3Config(access_key_id="id", secret_access_key=SECRET), "S3Config"),
        ("abfss://c@acc.dfs.core.windows.net/lake", AzureConfig(account_name="acc", account_key=SECRET), "AzureConfig"),
        ("gs://bucket/lake", GcsConfig(), "GcsConfig"),
        ("s3://bucket/lake", LocalConfig(), "s3://"),
    ],
)
def test_object_stores_are_refused_when_definitions_are_loaded(
    resource: Any, root: str, config: StorageConfig, named: str
) -> None:
    with pytest.raises(NotAFolder, match=rf"`{resource.__name__}` .*`{named}`.* Give it a folder") as refused:
        resource(root_uri=root, storage_options=config, spark=SparkEngine())
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("root", ["/lake", "file:///lake", "lake"])
def test_folders_are_taken(root: str) -> None:
    assert SparkDeltaIOManager(root_uri=root, storage_options=LocalConfig(), spark=SparkEngine()).root_uri == root


def test_an_object_store_that_only_the_environment_names_is_refused_when_the_resource_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_LAKE", "s3://bucket/lake")
    lake = Lake(root_uri=dg.EnvVar("MY_LAKE"), storage_options=LocalConfig(), spark=SparkEngine())
    with pytest.raises(dg.DagsterError) as failed, dg.build_resources({"lake": lake}):
        pass
    assert isinstance(failed.value.__cause__, NotAFolder)
