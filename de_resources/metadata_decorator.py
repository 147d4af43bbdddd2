"""Technical context beside the data: who wrote a record, with what version, in which attempt and batch.

    context = WriteContext("serving.visits_reduced", job_version="1.2.0", run=run_id, attempt=1)
    producer.produce(topic, value=value, headers=context.headers(batch))

Pattern: Metadata Decorator. It goes where engineers look and business readers do not: into the headers of a topic's records,
into the metadata of Delta's commits (`CommitInfo`), and into a technical table of the database that business roles cannot
read (`<schema>.loads` of `postgres.transaction`). Its names are fixed, and its values short and plain, so that nobody puts data
there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import dagster as dg

from de_resources.errors import PermanentError
from de_resources.retries import RETRY_NUMBER

PREFIX = "de-"
"""Before the name of each header: others who add theirs use other names."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:+-]{0,99}")


class NotTechnical(PermanentError):
    """A value that is no name, version, identifier or number: it may be data, or is missing. The message does not show it."""

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(
            f"The technical context has a `{field}` that is no plain identifier (100 letters, digits and ._/:+- at most). "
            "Nothing was written. Data belongs into the record's value, where its contract and its readers' rights hold."
        )


@dataclass(frozen=True)
class WriteContext:
    """Who writes a dataset (`layer.name`): attempts of a run count from 1. Raises `NotTechnical`."""

    dataset: str
    job_version: str
    run: str
    attempt: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no plain identifier, and what is not said at all."""
        for field in fields(self):
            value = getattr(self, field.name)
            # None would be the word "None" to whoever looks for the run.
            if value is None or not _PLAIN.fullmatch(str(value)):
                raise NotTechnical(field.name)

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, dataset: str, job_version: str) -> WriteContext:
        """The context of a step: retries of the step and of its whole run count as attempts."""
        retries = context.retry_number + int(context.run.tags.get(RETRY_NUMBER, 0))
        return cls(dataset, job_version, context.run.run_id, 1 + retries)

    def headers(self, batch: int) -> list[tuple[str, bytes]]:
        """Headers for each record of a micro-batch. One that is repeated by another run has that run's."""
        told = {"dataset": self.dataset, "job-version": self.job_version, "run": self.run}
        numbers = {"attempt": self.attempt, "batch": batch}
        return [(f"{PREFIX}{name}", str(value).encode()) for name, value in {**told, **numbers}.items()]
