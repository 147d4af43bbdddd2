"""What launches a run and runs it: origins, locations, the worker's entry."""

from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.errors import DagsterLaunchFailedError
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher import DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.origin import RepositoryPythonOrigin
from dagster._core.storage.tags import HIDDEN_TAG_PREFIX
from dagster._grpc.impl import IPCErrorMessage, RunInSubprocessComplete, start_run_in_subprocess
from dagster._grpc.types import ExecuteExternalJobArgs
from dagster._serdes import ConfigurableClassData, deserialize_value, serialize_value
from dagster._utils import get_run_crash_explanation

__all__ = [
    "HIDDEN_TAG_PREFIX",
    "CheckRunHealthResult",
    "ConfigurableClassData",
    "DagsterLaunchFailedError",
    "DefaultRunLauncher",
    "ExecuteExternalJobArgs",
    "IPCErrorMessage",
    "InstanceRef",
    "LaunchRunContext",
    "ReconstructableRepository",
    "RepositoryPythonOrigin",
    "RunInSubprocessComplete",
    "WorkerStatus",
    "deserialize_value",
    "get_run_crash_explanation",
    "serialize_value",
    "start_run_in_subprocess",
]
