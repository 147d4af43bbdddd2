"""What may be said about a write: who did it. What is data is refused, and not repeated in the refusal."""

import dagster as dg
import pytest

from de_resources.metadata_decorator import NotTechnical, WriteContext

pytestmark = pytest.mark.pattern("metadata_decorator")

RUN = "7b0a1c52-6f5e-4c0e-9a55-0f0b8b1f3a11"


def test_headers_say_who_wrote_under_names_of_their_own() -> None:
    context = WriteContext("serving.visits_reduced", "1.2.0+local", RUN, attempt=2)
    assert context.headers(7) == [
        ("de-dataset", b"serving.visits_reduced"),
        ("de-job-version", b"1.2.0+local"),
        ("de-run", RUN.encode()),
        ("de-attempt", b"2"),
        ("de-batch", b"7"),
    ]


@pytest.mark.parametrize(
    "value", ["ann@example.org", '{"user":"ann"}', "two words", "", "x" * 101, "line\nbreak", "Łódź", "'; DROP TABLE t"]
)
@pytest.mark.parametrize("field", ["dataset", "job_version", "run"])
def test_what_may_be_data_is_refused_and_not_shown(field: str, value: str) -> None:
    good = {"dataset": "serving.days", "job_version": "1", "run": RUN}
    with pytest.raises(NotTechnical, match=f"has a `{field}` that is no plain identifier") as refused:
        WriteContext(**{**good, field: value})
    assert not value or value not in str(refused.value)


@pytest.mark.parametrize("field", ["dataset", "job_version", "run", "attempt"])
def test_what_is_not_known_is_refused_and_not_told_as_a_word(field: str) -> None:
    """A header that says that the run is "None" leads an engineer nowhere, and looks as if it did."""
    good: dict[str, object] = {"dataset": "serving.days", "job_version": "1", "run": RUN, "attempt": 1}
    with pytest.raises(NotTechnical, match=f"has a `{field}` that is no plain identifier"):
        WriteContext(**{**good, field: None})  # type: ignore[arg-type]


def test_retries_of_a_step_and_of_its_run_are_attempts() -> None:
    seen: list[WriteContext] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def table(context: dg.AssetExecutionContext) -> None:
        seen.append(WriteContext.of(context, "gold.table", "1"))
        if len(seen) == 1:
            raise ValueError("the first attempt fails")

    result = dg.materialize([table], tags={"dagster/retry_number": "3"})
    assert [each.attempt for each in seen] == [4, 5]
    assert {each.run for each in seen} == {result.run_id}
