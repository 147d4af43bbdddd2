"""What is known of the networks from which the blog is visited."""

import pandera.pyspark as pa
import pyspark.sql.types as T

from de_resources.contract import ContractModel


class NetworkCountries(ContractModel):
    """The country of each network from which the blog was visited, as an API has told it: what was paid for is kept here.

    Grain: one network, of the size of a provider's block and no smaller: it stands for hundreds of addresses, and for nobody.
    Not partitioned: merged by key, the newest answer wins.
    """

    network: T.StringType = pa.Field(
        nullable=False, description="Network of the visitor: /24 of an IPv4 address, /48 of an IPv6 one"
    )
    country: T.StringType = pa.Field(
        nullable=True, description="Country, ISO 3166 alpha-2; null: the API does not know the network"
    )
    answered_at: T.TimestampType = pa.Field(nullable=False, description="When the API said so (UTC)")
    answered_in: T.StringType = pa.Field(nullable=False, description="The bulk call that was paid for the answer")

    class Config:
        """A network is asked for again when it is seen after its answer has become old."""

        name = "silver.network_countries"
        metadata = {"owner": "team:reference-data", "key": ["network"], "sla": {"takes_at_most": 15}}
