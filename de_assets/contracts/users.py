"""Users: all versions of each, and the state at the end of a day."""

import pandera.pyspark as pa
import pyspark.sql.types as T

OWNER = "team:accounts"
_PERSONAL = {"personal": True}


class UserColumns(pa.DataFrameModel):
    """What both datasets of users have."""

    user_id: T.StringType = pa.Field(nullable=False, description="Identity of the user")
    login: T.StringType = pa.Field(nullable=True, description="Login name", metadata=_PERSONAL)
    email: T.StringType = pa.Field(nullable=True, description="E-mail address", metadata=_PERSONAL)
    country: T.StringType = pa.Field(nullable=True, description="Country of residence, ISO 3166 alpha-2")


class Users(UserColumns):
    """Users as slowly changing dimension of type 2: one row per version, valid in the half-open `[valid_from, valid_to)`.

    Grain: one version of one user. A deleted user has no open version.
    """

    valid_from: T.TimestampType = pa.Field(nullable=False, description="Start of validity, inclusive")
    valid_to: T.TimestampType = pa.Field(nullable=True, description="End of validity, exclusive; null: still valid")
    is_current: T.BooleanType = pa.Field(nullable=False, description="Whether this version is valid now")

    class Config:
        """Intervals of one user neither overlap nor are they empty."""

        name = "silver.users"
        metadata = {
            "owner": OWNER,
            "key": ["user_id", "valid_from"],
            "rules": {
                "interval_not_empty": "valid_to IS NULL OR valid_to > valid_from",
                "open_means_current": "is_current = (valid_to IS NULL)",
            },
        }


class UsersSnapshot(UserColumns):
    """The users as they were at the end of each day.

    Grain: one user and day. Partition: the day.
    """

    snapshot_date: T.DateType = pa.Field(nullable=False, description="The day whose end the row describes (UTC)")

    class Config:
        """One row per living user and day."""

        name = "gold.users_snapshot"
        metadata = {"owner": OWNER, "key": ["user_id", "snapshot_date"], "partitioned_by": ["snapshot_date"]}
