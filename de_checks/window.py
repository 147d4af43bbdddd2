"""The rows of a time partition, by the window of the partition and a column of any table."""

from datetime import UTC

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType

from de_checks.baselines import window_of
from de_checks.per_key import Key
from de_resources.errors import PermanentError
from de_resources.sql.identifiers import identifier


class NoWindow(PermanentError):
    """A judgement of a window of time, asked of an asset that has none."""

    def __init__(self, asset: dg.AssetKey) -> None:
        self.asset = asset
        super().__init__(
            f"`{asset.to_user_string()}` has no time partitions, so that no part of it has a window of time."
        )


def inside(asset: dg.AssetSpec, key: Key, frame: DataFrame, at: str) -> DataFrame:
    """The rows of `frame` whose `at`, a day or an instant, lies in the partition `key` of `asset`. Raises `NoWindow`."""
    window = window_of(asset.partitions_def, key)
    if window is None:
        raise NoWindow(asset.key)
    start, end = window.start.astimezone(UTC), window.end.astimezone(UTC)
    moment = F.col(identifier(at))
    if isinstance(frame.schema[at].dataType, DateType):
        return frame.where((moment >= F.lit(start.date())) & (moment < F.lit(end.date())))
    return frame.where((moment >= F.lit(start)) & (moment < F.lit(end)))
