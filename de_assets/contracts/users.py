"""Users: all versions of each, and the state at the end of a day."""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel
from de_resources.moments import CONCEIVABLE

OWNER = "team:accounts"
_PERSONAL = {"personal": True}


class UserColumns(ContractModel):
    """What both datasets of users have."""

    user_id: T.StringType = pa.Field(nullable=False, description="Identity of the user")
    login: T.StringType = pa.Field(nullable=True, description="Login name", metadata=_PERSONAL)
    email: T.StringType = pa.Field(nullable=True, description="E-mail address", metadata=_PERSONAL)
    country: T.StringType = pa.Field(nullable=True, description="Country of residence, ISO 3166 alpha-2")


class UsersChanges(UserColumns):
    """Every change of the table of users, as the capture relayed it, understood or not.

    Grain: one record of the topic (partition, offset); tombstones are left out. Not partitioned: a stream appends. Of a
    deleted user the columns hold the last image. `t` concerns no single user: the table was emptied, or a snapshot begins. A
    record that was not understood has `error`, and nothing but its place.
    """

    user_id: T.StringType = pa.Field(nullable=True, description="Identity of the user")
    operation: T.StringType = pa.Field(
        nullable=True,
        isin=["r", "c", "u", "d", "t"],
        description="r: there before the capture; c, u, d: created, updated, deleted; t: all rows before are gone",
    )
    changed_at: T.TimestampType = pa.Field(
        nullable=True,
        in_range=CONCEIVABLE,
        description="When it changed: by the application, else the row's own stamp, else the commit",
    )
    commit_time: T.TimestampType = pa.Field(
        nullable=True, in_range=CONCEIVABLE, description="When the database committed"
    )
    commit_lsn: T.LongType = pa.Field(nullable=True, ge=0, description="Position of the commit in the database's log")
    sequence: T.IntegerType = pa.Field(nullable=True, ge=0, description="Number of the change within its transaction")
    before: T.StringType = pa.Field(nullable=True, description="The row before, as JSON", metadata=_PERSONAL)
    after: T.StringType = pa.Field(nullable=True, description="The row after, as JSON", metadata=_PERSONAL)
    payload: T.BinaryType = pa.Field(nullable=False, description="The record's value as it came", metadata=_PERSONAL)
    error: T.StringType = pa.Field(nullable=True, description="Why the record was not understood; null: it was")
    topic_partition: T.IntegerType = pa.Field(nullable=False, ge=0, description="Partition of the topic")
    topic_offset: T.LongType = pa.Field(nullable=False, ge=0, description="Offset in that partition")
    append_time: T.TimestampType = pa.Field(nullable=False, description="When the broker appended the record")
    delay_ms: T.LongType = pa.Field(
        nullable=True, description="From commit to topic, milliseconds; null for a snapshot"
    )

    class Config:
        """The position in the topic identifies a record, that in the database's log a change."""

        name = "bronze.users_changes"
        metadata = {
            "owner": OWNER,
            "key": ["topic_partition", "topic_offset"],
            "rules": {
                "understood_or_explained": "(error IS NULL) = (operation IS NOT NULL AND (operation = 't') = (user_id IS NULL))"
            },
        }


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
            # Consumers that follow the changes of versions need not read all of them again.
            "properties": {"delta.enableChangeDataFeed": "true"},
            "rules": {
                "interval_not_empty": "valid_to IS NULL OR valid_to > valid_from",
                "open_means_current": "is_current = (valid_to IS NULL)",
            },
        }


class UsersByCountry(ContractModel):
    """How many users each country has now.

    Grain: one country with at least one user.
    """

    country: T.StringType = pa.Field(nullable=False, description="Country of residence; `??`: not said")
    users: T.LongType = pa.Field(nullable=False, ge=1, description="Users whose current version lives there")
    source_version: T.LongType = pa.Field(
        nullable=False,
        ge=0,
        description="Version of silver.users up to which changes are counted; the same in all rows",
    )

    class Config:
        """Kept from the changes of silver.users."""

        name = "gold.users_by_country"
        metadata = {"owner": OWNER, "key": ["country"]}


class UsersSnapshot(UserColumns):
    """The users as they were at the end of each day.

    Grain: one user and day. Partition: the day.
    """

    snapshot_date: T.DateType = pa.Field(nullable=False, description="The day whose end the row describes (UTC)")

    class Config:
        """One row per living user and day."""

        name = "gold.users_snapshot"
        metadata = {"owner": OWNER, "key": ["user_id", "snapshot_date"], "partitioned_by": ["snapshot_date"]}


class UsersLatest(ContractModel):
    """The users of the newest day that has a snapshot, without anything personal. A view: it stores no rows.

    Grain: one user.
    """

    user_id: T.StringType = pa.Field(nullable=False, description="Identity of the user")
    country: T.StringType = pa.Field(nullable=True, description="Country of residence, ISO 3166 alpha-2")
    snapshot_date: T.DateType = pa.Field(nullable=False, description="The day whose end the rows describe (UTC)")

    class Config:
        """Of one day."""

        name = "gold.users_latest"
        metadata = {"owner": OWNER, "key": ["user_id"]}
