"""The page of the IO manager says how it differs from dagster-delta: each of its rows is shown by tests that exist."""

import re
from pathlib import Path

import pytest
from own_modules import plain_tests

TESTS = Path(__file__).resolve().parent.parent
PAGE = TESTS.parent / "docs" / "io-managers.md"
_SETTINGS, _NAMES = "graph/test_io_manager_settings.py", "graph/test_io_manager_names.py"
_SLICES, _BESIDE = "graph/test_io_manager_slices.py", "graph/test_io_manager_dagster_delta.py"
_PORTS, _RULE = "graph/test_io_manager_ports.py", "unit/delta/test_merge_rule.py"
_REFUSED = "graph/test_refusals.py::test_a_refusal_has_its_own_name_and_leaves_the_table_alone"
_VERSIONS_AND_NAMES = f"{_BESIDE}::test_differences_in_versions_and_names"

SHOWN_BY = {
    "`writer_properties`, `commit_properties`, `parquet_read_options`": [
        f"{_SETTINGS}::test_a_setting_that_nobody_would_follow_is_refused_by_name",
        f"{_SETTINGS}::test_a_managers_setting_that_nobody_would_follow_is_refused_by_name",
    ],
    "`S3Config`, `AzureConfig`, `GcsConfig`": [
        "unit/test_storage.py::test_object_stores_are_refused_when_definitions_are_loaded"
    ],
    "merge type `custom`, `merge_operations_config`": [
        f"{_RULE}::test_custom_clauses_and_unknown_words_are_refused",
        f"{_SETTINGS}::test_a_setting_that_nobody_would_follow_is_refused_by_name",
    ],
    "`merge_predicate`": [
        f"{_RULE}::test_predicates_of_equalities_name_the_key",
        f"{_RULE}::test_other_predicates_are_refused_or_no_key",
        "unit/delta/test_identifiers.py::test_a_merge_predicate_may_quote_its_columns",
    ],
    "`mode: merge` with a map or variant column": [
        "tables/test_merge.py::test_a_column_that_nobody_can_compare_is_named"
    ],
    "`error_on_type_mismatch: false`": [
        f"{_SETTINGS}::test_values_of_another_type_are_refused_whatever_the_manager_says_of_them"
    ],
    "settings that a run says by `context.add_output_metadata`": [
        f"{_SETTINGS}::test_a_run_changes_the_mode_of_its_write",
        f"{_SETTINGS}::test_a_run_lets_its_table_gain_a_column",
        f"{_SETTINGS}::test_a_run_names_the_keys_of_its_merge",
        f"{_SETTINGS}::test_a_run_cannot_change_what_only_a_definition_can_say",
    ],
    "`client_options`": [f"{_SETTINGS}::test_the_log_is_read_with_the_options_of_the_client"],
    "`partition_expr`": [_VERSIONS_AND_NAMES],
    "case of columns": [_VERSIONS_AND_NAMES, _REFUSED],
    "names of tables and layers": [f"{_SLICES}::test_asset_keys_that_leave_the_lake_are_refused"],
    "names of columns": [
        f"{_NAMES}::test_a_slice_is_created_replaced_read_and_described",
        f"{_NAMES}::test_a_name_that_needs_the_mapping_is_refused_before_anything_is_made",
        f"{_NAMES}::test_a_partition_column_that_delta_cannot_merge_by_is_said",
        "unit/delta/test_identifiers.py::test_a_name_that_sql_cannot_say_is_refused",
    ],
    'partition keys `""` and `__HIVE_DEFAULT_PARTITION__`': [
        f"{_SLICES}::test_a_key_that_would_be_stored_as_null_is_refused_by_name"
    ],
    "rows outside the run's partitions": [_REFUSED],
    "`schema_mode: overwrite` of a partitioned asset": [
        "graph/test_io_manager_modes.py::test_overwrite_replaces_the_schema_of_a_whole_table_and_never_of_a_partitioned_one"
    ],
    "partitions of a time zone": [
        f"{_BESIDE}::test_defect_10_partitions_of_another_zone_do_not_shift",
        f"{_SLICES}::test_times_without_a_zone_are_in_utc",
        "unit/delta/test_slices.py::test_the_predicate_means_the_same_to_the_engine",
    ],
    "number of the first version": [_VERSIONS_AND_NAMES],
    "types of inputs and outputs": [
        f"{_PORTS}::test_an_input_that_wants_no_frame_is_refused",
        f"{_PORTS}::test_an_output_that_is_no_frame_is_refused",
    ],
    "outputs of ops that are no assets, also between the ops of a `graph_asset`": [
        f"{_PORTS}::test_values_of_plain_ops_are_refused_with_what_to_do",
        f"{_PORTS}::test_what_stays_inside_a_graph_asset_is_refused_with_what_to_do",
    ],
}


def test_every_difference_is_shown_by_tests() -> None:
    (table,) = re.findall(r"## Differences from dagster-delta\n.*?(?=\n## )", PAGE.read_text(), re.DOTALL)
    _head, _line, *rows = [line for line in table.splitlines() if line.startswith("|")]
    assert [row.split("|")[1].strip() for row in rows] == list(SHOWN_BY)


@pytest.mark.xdist_group("imports")
def test_the_tests_that_show_them_exist() -> None:
    named = {tuple(test.split("::")) for tests in SHOWN_BY.values() for test in tests}
    assert {(module, name) for module, name in named if name not in plain_tests(TESTS / module)} == set()
