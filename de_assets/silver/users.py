"""All versions of every user.

Grain: one version of one user, valid in a half-open interval. The database keeps the history of its table by a trigger; the
versions follow from it, so that a rerun gives the same rows and a backfill of visits joins with what was valid then.
"""

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from de_assets.automation.conditions import polled
from de_assets.contracts.users import Users
from de_assets.dataset import dataset
from de_assets.sources.systems import USERS_TABLE
from de_assets.transforms.slowly_changing_dimension import versions
from de_checks.contract import contract_check
from de_checks.volume import volume_check
from de_resources.postgres import PostgresDatabase
from de_resources.spark import SparkEngine


@dg.asset(
    **dataset(Users),
    deps=[USERS_TABLE],
    automation_condition=polled("0 * * * *"),
)
def users(database: PostgresDatabase, spark: SparkEngine) -> DataFrame:
    """Versions from the table's history."""
    history = spark.spark_session.read.format("jdbc").options(**database.jdbc_options("users_history")).load()
    deleted = F.col("operation") == "D"
    return versions(history, "user_id", ["login", "email", "country"], "changed_at", deleted)


checks = [contract_check(users), volume_check(users, tolerance=(0.9, 2.0))]
