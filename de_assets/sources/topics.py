"""The broker's topics that the blog uses."""

from de_resources.local.topics import TopicSpec

VISITS = "visits"

TOPICS = (
    # The broker's clock and not the producer's decides when a visit was received.
    TopicSpec(VISITS, partitions=3, config={"message.timestamp.type": "LogAppendTime"}),
)
