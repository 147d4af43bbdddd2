"""What can go wrong with an API that is asked about values."""

from __future__ import annotations

from de_resources.errors import PermanentError, TransientError


class ApiUnavailable(TransientError):
    """The API does not answer, or answers nothing but "later". It was asked again for a while."""

    soon = False

    def __init__(self, api: str, address: str, what: str, requests: int) -> None:
        self.api, self.address, self.what, self.requests = api, address, what, requests
        super().__init__(
            f"`{api}` at {address} answers nothing now ({what}), after {requests} request(s). What it has answered before is "
            "kept, and is not asked for again. Look at what runs there, then run again."
        )


class CircuitOpen(ApiUnavailable):
    """The API failed so often, in this run or in others, that it is left alone for a while: it was not asked."""

    def __init__(self, api: str, address: str, seconds: float, requests: int) -> None:
        super().__init__(
            api, address, f"the circuit is open: it failed too often, and rests for {seconds:g} s", requests
        )


class NonsenseAnswer(TransientError):
    """The API answered something that is no answer to what it was asked. Nothing of that answer was taken."""

    soon = False

    def __init__(self, api: str, address: str, why: str) -> None:
        self.api, self.address, self.why = api, address, why
        super().__init__(
            f"`{api}` at {address} answered what is not understood: {why}. Nothing of it was taken, though it may have "
            "been paid for. Look at what runs there; what is missing is asked for by the next run."
        )


class ApiRefuses(PermanentError):
    """The API refuses requests as such: a wrong login, a wrong address, values that it does not know how to look up."""

    def __init__(self, api: str, address: str, status: int) -> None:
        self.api, self.address, self.status = api, address, status
        super().__init__(
            f"`{api}` at {address} refuses requests ({status}). Correct its address or the secret of its login, then run again."
        )


class QuotaTooSmall(TransientError):
    """More values to look up than the API will answer before its quota is renewed."""

    soon = False

    def __init__(self, api: str, needed: int, left: int) -> None:
        self.api, self.needed, self.left = api, needed, left
        super().__init__(
            f"`{api}` answers {left} more value(s), and {needed} are to be looked up. None was. Buy more, or run again when "
            "the quota is renewed."
        )


class ApiMisconfigured(PermanentError):
    """An API without the secret of its login."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"The API {url} cannot be used: give `token` (secret://name) too.")


class StagedAnswersGone(PermanentError):
    """Answers that a step was told of and that are not in their place, or not as they were written."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(
            f"The staged answers `{name}` cannot be read: {why}. Nothing was written. Remove the file if it is there, "
            "and materialise the asset anew: it asks for what its table does not have."
        )


class LookupBusy(TransientError):
    """Another run asks the same API for the same table, and does not come to an end."""

    soon = False

    def __init__(self, what: str, seconds: float) -> None:
        self.what, self.seconds = what, seconds
        super().__init__(
            f"`{what}` is being looked up by another run, for more than {seconds:g} s: two would pay for the same values. "
            "Nothing was asked. Wait for the other run, or terminate it, then run again."
        )
