"""Where tables lie: in folders. What names an object store is refused when definitions are loaded.

`dagster_delta`'s configuration can name object stores (`S3Config`, `AzureConfig`, `GcsConfig`); the engine has no connector
for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagster_delta import AzureConfig, GcsConfig, LocalConfig, S3Config
from pydantic import BaseModel

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


class InFolders(BaseModel):
    """A resource with `root_uri` and `storage_options`, which refuses as it is made what could not work. The first base."""

    if TYPE_CHECKING:
        root_uri: str
        storage_options: AzureConfig | S3Config | LocalConfig | GcsConfig

    def model_post_init(self, context: Any) -> None:
        """Raise `NotAFolder` for an object store."""
        super().model_post_init(context)
        require_folder(type(self).__name__, self.root_uri, self.storage_options)
