"""Which failures a step tries again: the transient ones, and no others.

    @dg.asset(retry_policy=RETRY_TRANSIENT)

Dagster's own `RetryPolicy` tries every failure again, a refusal too, which fails the same way each time, and the termination of
a run. This one looks at the error first. It covers the whole step: the asset's function, what loads its inputs and what
writes its outputs, so that another attempt asks for a new session and computes its frames on it. It can be repeated because
the writers can: what an earlier attempt has committed is found by its stamp and is not written twice.
"""

from __future__ import annotations

import sys

import dagster as dg

from de_resources.errors import TransientError

RETRY_NUMBER = "dagster/retry_number"
"""Tag of a run that the instance has started again: how often."""


class TransientRetries(dg.RetryPolicy):
    """Asks for another attempt after a `TransientError` that may be over `soon`. All other errors fail the step at once.

    The last attempt fails with its own error, and not with one about attempts.
    """

    def calculate_delay(self, attempt_num: int) -> float:
        """Seconds until attempt `attempt_num + 1`. Dagster calls it while it handles the error of the one before.

        Raises the error itself, wrapped as Dagster wraps errors of steps without a policy, where there is no other attempt.
        """
        raised = sys.exception()
        error = raised if not isinstance(raised, Exception) else _lost_engine(raised) or raised
        if isinstance(error, TransientError) and error.soon and attempt_num <= self.max_retries:
            return float(super().calculate_delay(attempt_num))
        if isinstance(error, dg.Failure):  # what an asset says about itself, Dagster shows as it is
            raise error
        if not isinstance(error, Exception):  # the run is being terminated
            raise error or dg.DagsterInvariantViolationError("There is no error to try again after.")
        attempts = "" if attempt_num == 1 else f" in attempt {attempt_num}"
        raise dg.DagsterUserCodeExecutionError(
            f"The step failed{attempts}:", user_exception=error, original_exc_info=sys.exc_info()
        ) from error


def _lost_engine(error: Exception) -> TransientError | None:
    """What an engine of this process says about the error. Who has none, need not have PySpark for the policy's sake."""
    engines = sys.modules.get("de_resources.spark")
    lost: TransientError | None = engines.loss(error) if engines is not None else None
    return lost


def origin_of(run: dg.DagsterRun) -> str:
    """The run, or the first of a chain of automatic retries, which write once. A person's re-execution is a new write."""
    return (run.root_run_id if RETRY_NUMBER in run.tags else None) or run.run_id


RETRY_TRANSIENT = TransientRetries(max_retries=3, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""After 2, 6 and 14 seconds, each up to 2 more or less, so that those who failed together do not come back together."""
