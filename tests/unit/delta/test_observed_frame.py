"""What a frame tells after its write, as Dagster shows it."""

import dagster as dg
import pytest

from de_resources.delta.observed_frame import Markdown, record_metadata


@pytest.mark.pattern("filter_interceptor")
def test_a_table_for_people_is_shown_as_one_and_numbers_stay_numbers() -> None:
    context = dg.build_output_context()
    record_metadata(
        context, {None: {"table": Markdown("| a |"), "by_name": {"a": {"first": 1}}, "rows": 3, "why": "text"}}
    )
    shown = {name: (type(value), value.value) for name, value in context.get_logged_metadata().items()}
    assert shown == {
        "table": (dg.MarkdownMetadataValue, "| a |"),
        "by_name": (dg.JsonMetadataValue, {"a": {"first": 1}}),
        "rows": (dg.IntMetadataValue, 3),
        "why": (dg.TextMetadataValue, "text"),
    }
