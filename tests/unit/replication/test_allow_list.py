"""The allow-list is the contract: what it does not have does not leave, and what it tags does not either."""

from __future__ import annotations

import pandera.pyspark as pa
import pyspark.sql.types as T
import pytest

from de_resources.contract import Contract
from de_resources.replication.allow_list import (
    PersonalKey,
    UnclassifiedColumns,
    VanishedColumns,
    allowed_columns,
    replica_model,
)

_PERSONAL = {"personal": True}


class People(pa.DataFrameModel):
    """One row per person."""

    id: T.LongType = pa.Field(nullable=False, ge=0, description="Pseudonym")
    email: T.StringType = pa.Field(nullable=True, str_contains="@", description="Address", metadata=_PERSONAL)
    price: T.DecimalType(10, 2) = pa.Field(nullable=True, description="Price")  # type: ignore[valid-type]
    email_domain: T.StringType = pa.Field(nullable=True, description="Provider")

    class Config:
        name = "silver.people"
        metadata = {  # noqa: RUF012
            "owner": "team:web",
            "key": ["id"],
            "properties": {"delta.enableChangeDataFeed": "true"},
            "rules": {
                "same_domain": "email LIKE concat('%', email_domain)",
                "domain_is_short": "length(email_domain) < 90",
            },
        }


class Named(pa.DataFrameModel):
    """One row per e-mail address."""

    email: T.StringType = pa.Field(nullable=False, description="Address", metadata=_PERSONAL)

    class Config:
        name = "silver.named"
        metadata = {"key": ["email"]}  # noqa: RUF012


StagingPeople = replica_model(People, "staging.people", __name__)


@pytest.mark.pattern("transformation_replicator")
def test_only_untagged_columns_leave_in_the_contracts_order() -> None:
    assert allowed_columns(Contract.of(People), ["email_domain", "email", "price", "id"]) == [
        "id",
        "price",
        "email_domain",
    ]


@pytest.mark.pattern("transformation_replicator")
def test_a_personal_column_may_be_absent_already() -> None:
    assert allowed_columns(Contract.of(People), ["id", "price", "email_domain"]) == ["id", "price", "email_domain"]


@pytest.mark.pattern("transformation_replicator")
def test_columns_that_nobody_classified_are_all_named() -> None:
    with pytest.raises(UnclassifiedColumns, match="`phone`, `Email`") as error:
        allowed_columns(Contract.of(People), ["id", "phone", "email", "price", "email_domain", "Email"])

    assert error.value.columns == ("phone", "Email")
    assert error.value.dataset == "silver.people"


def test_columns_that_vanished_are_named() -> None:
    with pytest.raises(VanishedColumns, match="`price`"):
        allowed_columns(Contract.of(People), ["id", "email_domain"])


def test_the_replicas_contract_is_the_sources_without_what_is_personal() -> None:
    source, replica = Contract.of(People), Contract.load(Contract.of(StagingPeople).path)

    assert replica.name == "staging.people"
    assert replica.columns == tuple(c for c in source.columns if not c.personal)
    assert [rule.name for rule in replica.rules] == ["id_present", "id_greater_than_or_equal_to", "domain_is_short"]
    assert (replica.owner, replica.key, dict(replica.properties)) == (source.owner, source.key, {})
    assert not replica.personal


def test_a_dataset_that_personal_data_identifies_has_no_replica() -> None:
    with pytest.raises(PersonalKey, match="email"):
        replica_model(Named, "staging.named", __name__)
