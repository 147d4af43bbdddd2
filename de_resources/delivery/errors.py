"""What can go wrong on the way to a receiver."""

from __future__ import annotations

from collections.abc import Sequence

from de_resources.errors import PermanentError, TransientError


class ReceiverUnavailable(TransientError):
    """The receiver does not answer, is busy, or says that it is out of order: it was asked again for a while."""

    def __init__(self, receiver: str, address: str, what: str) -> None:
        self.receiver, self.address, self.what = receiver, address, what
        super().__init__(
            f"`{receiver}` at {address} takes nothing now ({what}). What it has confirmed is noted, the rest is kept; the next "
            "run goes on there. Whether the last request arrived is not known: it is repeated under the same identities."
        )


class AnswerNotUnderstood(TransientError):
    """The receiver answered something that is no answer to the request."""

    soon = False

    def __init__(self, receiver: str, address: str, why: str) -> None:
        self.receiver, self.address, self.why = receiver, address, why
        super().__init__(
            f"`{receiver}` at {address} answered what is not understood: {why}. Nothing of the request counts as delivered, "
            "though it may have arrived. Look at what runs there; the next run repeats the request under the same identities."
        )


class ReceiverRefuses(PermanentError):
    """The receiver refuses requests as such: a wrong login, a wrong address, a batch that it never takes."""

    def __init__(self, receiver: str, address: str, status: int) -> None:
        self.receiver, self.address, self.status = receiver, address, status
        super().__init__(
            f"`{receiver}` at {address} refuses requests ({status}). Nothing of this one was delivered. Correct its address or "
            "the secret of its login."
        )


class DeliveryStalled(TransientError):
    """Records that the receiver rejects again and again."""

    soon = False

    def __init__(self, keys: Sequence[str], attempts: int) -> None:
        self.keys, self.attempts = tuple(keys), attempts
        super().__init__(
            f"{len(keys)} record(s) were rejected {attempts} times in a row. Later ones of their keys were not sent; the next "
            "run goes on with them. Ask the receiver why it rejects them."
        )


class FeedBusy(TransientError):
    """Another run sends the same feed, and does not come to an end."""

    soon = False

    def __init__(self, feed: str, seconds: float) -> None:
        self.feed, self.seconds = feed, seconds
        super().__init__(
            f"`{feed}` is being sent by another run, for more than {seconds:g} s: two senders would overtake each other. "
            "Nothing was planned or sent. Wait for the other run, or terminate it, then run again."
        )


class OutboxLost(TransientError):
    """The database went away while it was asked for, or told about, records."""

    def __init__(self, feed: str, why: str) -> None:
        self.feed, self.why = feed, why
        super().__init__(
            f"The outbox of `{feed}` does not answer ({why}). What was sent last may not be noted; it is sent again under the "
            "same identities. Look at `de status`, then run again."
        )


class PlanRefused(PermanentError):
    """Rows that cannot be planned as they are."""

    def __init__(self, feed: str, why: str) -> None:
        self.feed, self.why = feed, why
        super().__init__(
            f"The rows for `{feed}` cannot be sent: {why}. Nothing was planned or sent. Correct the rows, run again."
        )
