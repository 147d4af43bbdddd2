"""One storage configuration in the engine's dialect; what cannot be said there is refused, and never printed."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from dagster_delta import AzureConfig, GcsConfig, LocalConfig, S3Config

from de_resources.delta.io_manager import SparkDeltaIOManager
from de_resources.errors import PermanentError
from de_resources.lake import Lake
from de_resources.proxy.io_manager import ProxyDeltaIOManager
from de_resources.replication.lake import ReplicaDeltaIOManager
from de_resources.spark import SparkEngine
from de_resources.storage import NotAFolder, StorageConfig, spark_options

HOST = "acc.dfs.core.windows.net"
OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"
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


def test_a_local_disk_needs_nothing() -> None:
    assert spark_options(LocalConfig()) == {}


class TestS3:
    def test_keys(self) -> None:
        assert spark_options(S3Config(access_key_id="id", secret_access_key=SECRET, region="eu-central-1")) == {
            "fs.s3a.access.key": "id",
            "fs.s3a.secret.key": SECRET,
            "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "fs.s3a.endpoint.region": "eu-central-1",
        }

    def test_temporary_keys(self) -> None:
        options = spark_options(S3Config(access_key_id="id", secret_access_key=SECRET, token="t"))
        assert options["fs.s3a.session.token"] == "t"
        assert options["fs.s3a.aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")

    def test_without_keys_the_machine_authenticates(self) -> None:
        assert spark_options(S3Config()) == {}

    @pytest.mark.parametrize(
        ("endpoint", "virtual", "style", "tls"),
        [
            ("http://127.0.0.1:9000", None, "true", "false"),
            ("https://s3.example.org", None, "true", None),
            ("https://s3.example.org", "true", None, None),
        ],
    )
    def test_private_endpoints(self, endpoint: str, virtual: str | None, style: str | None, tls: str | None) -> None:
        options = spark_options(S3Config(endpoint=endpoint, virtual_hosted_style_request=virtual))
        assert options["fs.s3a.endpoint"] == endpoint
        assert options.get("fs.s3a.path.style.access") == style
        assert options.get("fs.s3a.connection.ssl.enabled") == tls


class TestAzure:
    def test_account_key(self) -> None:
        config = AzureConfig(account_name="acc", account_key=SECRET)
        assert spark_options(config) == {f"fs.azure.account.key.{HOST}": SECRET}

    def test_fabric_has_another_host(self) -> None:
        config = AzureConfig(account_name="acc", account_key=SECRET, use_fabric_endpoint=True)
        assert list(spark_options(config)) == ["fs.azure.account.key.acc.dfs.fabric.microsoft.com"]

    def test_shared_access_signature(self) -> None:
        assert spark_options(AzureConfig(account_name="acc", sas_key=SECRET)) == {
            f"fs.azure.account.auth.type.{HOST}": "SAS",
            f"fs.azure.sas.fixed.token.{HOST}": SECRET,
        }

    def test_client_secret(self) -> None:
        config = AzureConfig(account_name="acc", client_id="c", client_secret=SECRET, tenant_id="t")
        assert spark_options(config) == {
            f"fs.azure.account.auth.type.{HOST}": "OAuth",
            f"fs.azure.account.oauth.provider.type.{HOST}": f"{OAUTH}.ClientCredsTokenProvider",
            f"fs.azure.account.oauth2.client.endpoint.{HOST}": "https://login.microsoftonline.com/t/oauth2/token",
            f"fs.azure.account.oauth2.client.secret.{HOST}": SECRET,
            f"fs.azure.account.oauth2.client.id.{HOST}": "c",
        }

    @pytest.mark.parametrize(
        ("settings", "provider"),
        [
            (
                {"federated_token_file": "/run/token", "client_id": "c", "tenant_id": "t"},
                "WorkloadIdentityTokenProvider",
            ),
            ({"client_id": "c"}, "MsiTokenProvider"),
        ],
    )
    def test_identities(self, settings: dict[str, Any], provider: str) -> None:
        options = spark_options(AzureConfig(account_name="acc", **settings))
        assert options[f"fs.azure.account.oauth.provider.type.{HOST}"] == f"{OAUTH}.{provider}"
        assert options[f"fs.azure.account.oauth2.client.id.{HOST}"] == "c"


class TestGcs:
    def test_key_file(self) -> None:
        assert spark_options(GcsConfig(service_account="/run/key.json")) == {
            "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
            "fs.gs.auth.service.account.json.keyfile": "/run/key.json",
        }

    def test_the_machine_authenticates(self) -> None:
        assert spark_options(GcsConfig()) == {"fs.gs.auth.type": "APPLICATION_DEFAULT"}


@pytest.mark.parametrize(
    ("kind", "settings", "hint"),
    [
        (S3Config, {"secret_access_key": SECRET}, "together"),
        (S3Config, {"access_key_id": SECRET}, "together"),
        (AzureConfig, {"account_key": SECRET}, "account_name"),
        (AzureConfig, {"account_name": "a", "token": SECRET}, "no ready-made token"),
        (AzureConfig, {"account_name": "a", "use_azure_cli": True}, "Azure CLI"),
        (AzureConfig, {"account_name": "a", "msi_endpoint": SECRET}, "MSI endpoint"),
        (AzureConfig, {"account_name": "a", "msi_resource_id": SECRET}, "msi_resource_id"),
        (AzureConfig, {"account_name": "a", "client_secret": SECRET}, "tenant_id"),
        (GcsConfig, {"service_account_key": SECRET}, "key file"),
    ],
)
def test_what_the_engine_cannot_express_is_refused_without_telling_it(
    kind: type[StorageConfig], settings: dict[str, Any], hint: str
) -> None:
    with pytest.raises(PermanentError, match=hint) as caught:
        spark_options(kind(**settings))
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
