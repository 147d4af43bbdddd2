"""The broker's topics that the blog uses."""

from de_resources.local.topics import TopicSpec

VISITS = "visits"
USERS = "users"
STAGING_VISITS = "staging.visits"
VISITS_REDUCED = "visits_reduced"
PROFILE_CHANGES = "profile_changes"
FEATURES = "features"
ADS = "ads"

TOPICS = (
    # The broker's clock and not the producer's decides when a visit was received.
    TopicSpec(VISITS, partitions=3, config={"message.timestamp.type": "LogAppendTime"}),
    # The newest change of each user stays for ever; older ones for a week, in which the lake has read them.
    TopicSpec(USERS, partitions=3, config={"cleanup.policy": "compact", "min.compaction.lag.ms": str(7 * 86_400_000)}),
    # Keyed by page, on which ads follow each other.
    TopicSpec(ADS, partitions=3, config={"message.timestamp.type": "LogAppendTime"}),
    # Announcements are few and are kept for ever. One partition: they have an order.
    TopicSpec(FEATURES, config={"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}),
    # A replica keeps the partitions and the times of its source.
    TopicSpec(STAGING_VISITS, partitions=3, config={"message.timestamp.type": "CreateTime"}),
    TopicSpec(VISITS_REDUCED, partitions=3),
    # Who reads it from the beginning knows where every user lives.
    TopicSpec(PROFILE_CHANGES, partitions=3, config={"retention.ms": "-1"}),
)
