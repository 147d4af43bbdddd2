"""What the declarations of served datasets have in common."""

from collections.abc import Sequence
from typing import Any

from pandera.pyspark import DataFrameModel

from de_assets.dataset import dataset


def served(model: type[DataFrameModel], *, kind: str, patterns: Sequence[str], **metadata: Any) -> dict[str, Any]:
    """Keyword arguments for an asset of `kind` that writes to its system itself, without an IO manager."""
    declared = dataset(model, patterns=patterns, **metadata)
    del declared["io_manager_key"]
    return {**declared, "kinds": {kind}}
