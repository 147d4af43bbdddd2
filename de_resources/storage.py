"""Object-store credentials in two dialects: delta-rs' storage options, and the engine's Hadoop settings.

One configuration (`dagster_delta`'s `LocalConfig`, `S3Config`, `AzureConfig`, `GcsConfig`) serves both, so that a table
is reachable by the engine and by JVM-free readers alike. Sources: Hadoop's S3A, ABFS and GCS connector manuals.
"""

from __future__ import annotations

from dagster_delta import AzureConfig, GcsConfig, LocalConfig, S3Config

from de_resources.errors import PermanentError
from de_resources.settings import is_folder

StorageConfig = LocalConfig | S3Config | AzureConfig | GcsConfig


class NotAFolder(PermanentError):
    """A resource that is to keep its tables in an object store."""

    def __init__(self, resource: str, setting: str) -> None:
        self.resource, self.setting = resource, setting
        super().__init__(
            f"`{resource}` is given {setting}, and keeps its tables in folders only: the engine has no connector for object "
            "stores, and no statement gets their credentials. Give it a folder as `root_uri` and `LocalConfig()` as "
            "`storage_options`; for an object store, take an IO manager of `dagster-delta`."
        )


def require_folder(resource: str, root: str, config: StorageConfig) -> None:
    """Raise `NotAFolder` for what could not work, as early as the resource is made: when definitions are loaded."""
    if not isinstance(config, LocalConfig):
        raise NotAFolder(resource, f"`{type(config).__name__}`")
    if not is_folder(root):
        raise NotAFolder(resource, f"a place at `{root.split('://')[0]}://`")


def spark_options(config: StorageConfig) -> dict[str, str]:
    """The engine's settings for a storage configuration; options of a read or write, never of the whole session.

    Raises `PermanentError` for a setting that the engine's connector cannot express.
    """
    if isinstance(config, S3Config):
        return _s3(config)
    if isinstance(config, AzureConfig):
        return _azure(config)
    if isinstance(config, GcsConfig):
        return _gcs(config)
    return {}


def _given(pairs: dict[str, str | None]) -> dict[str, str]:
    return {k: v for k, v in pairs.items() if v is not None}


def _s3(c: S3Config) -> dict[str, str]:
    if (c.access_key_id is None) != (c.secret_access_key is None):
        raise PermanentError("S3 storage needs `access_key_id` and `secret_access_key` together, or neither of them.")
    if c.access_key_id is None:
        provider = None
    elif c.token:
        provider = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    else:
        provider = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    virtual = (c.virtual_hosted_style_request or "").lower() == "true"
    return _given(
        {
            "fs.s3a.access.key": c.access_key_id,
            "fs.s3a.secret.key": c.secret_access_key,
            "fs.s3a.session.token": c.token,
            "fs.s3a.aws.credentials.provider": provider,
            "fs.s3a.endpoint": c.endpoint,
            "fs.s3a.endpoint.region": c.region,
            # A private endpoint rarely has a DNS name per bucket.
            "fs.s3a.path.style.access": "true" if c.endpoint and not virtual else None,
            "fs.s3a.connection.ssl.enabled": "false" if (c.endpoint or "").startswith("http://") else None,
        }
    )


def _azure(c: AzureConfig) -> dict[str, str]:
    if not c.account_name:
        raise PermanentError("Azure storage needs `account_name`: the engine's settings are per account.")
    if c.token or c.use_azure_cli or c.msi_endpoint:
        raise PermanentError(
            "The engine's ABFS connector takes no ready-made token, Azure CLI login or MSI endpoint. "
            "Use an account key, a SAS key, a client secret, a federated token file or a managed identity."
        )
    if c.msi_resource_id:
        raise PermanentError("The engine's ABFS connector takes no `msi_resource_id`. Use `client_id` of the identity.")
    host = f"{c.account_name}.dfs.{'fabric.microsoft.com' if c.use_fabric_endpoint else 'core.windows.net'}"
    if c.account_key:
        return {f"fs.azure.account.key.{host}": c.account_key}
    if c.sas_key:
        return {
            f"fs.azure.account.auth.type.{host}": "SAS",
            f"fs.azure.sas.fixed.token.{host}": c.sas_key,
        }
    return {f"fs.azure.account.auth.type.{host}": "OAuth", **_azure_oauth(c, host)}


def _azure_oauth(c: AzureConfig, host: str) -> dict[str, str]:
    provider = f"fs.azure.account.oauth.provider.type.{host}"
    package = "org.apache.hadoop.fs.azurebfs.oauth2"
    named = _given(
        {
            f"fs.azure.account.oauth2.client.id.{host}": c.client_id,
            f"fs.azure.account.oauth2.msi.tenant.{host}": c.tenant_id if not c.client_secret else None,
        }
    )
    if c.client_secret:
        if not (c.client_id and c.tenant_id):
            raise PermanentError("A client secret needs `client_id` and `tenant_id` beside it.")
        endpoint = f"https://login.microsoftonline.com/{c.tenant_id}/oauth2/token"
        return {
            provider: f"{package}.ClientCredsTokenProvider",
            f"fs.azure.account.oauth2.client.endpoint.{host}": endpoint,
            f"fs.azure.account.oauth2.client.secret.{host}": c.client_secret,
            **named,
        }
    if c.federated_token_file:
        return {
            provider: f"{package}.WorkloadIdentityTokenProvider",
            f"fs.azure.account.oauth2.token.file.{host}": c.federated_token_file,
            **named,
        }
    return {provider: f"{package}.MsiTokenProvider", **named}


def _gcs(c: GcsConfig) -> dict[str, str]:
    keyfile = c.service_account or c.application_credentials
    if c.service_account_key and not keyfile:
        raise PermanentError("The engine's GCS connector takes a key file. Use `service_account` with the file's path.")
    if keyfile is None:
        return {"fs.gs.auth.type": "APPLICATION_DEFAULT"}
    return {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "fs.gs.auth.service.account.json.keyfile": keyfile}
