"""All cases. Those that start programs of their own come first, before this process holds an engine with its memory."""

from benchmarks.case import Case
from benchmarks.cases import (
    backfill,
    capture,
    contract_check,
    dual_write,
    executors,
    file_loader,
    filter_account,
    generator,
    import_time,
    lineage,
    make_run,
    make_test,
    merge_replay,
    metadata_cleaner,
    observatory,
    online_observer,
    orderers,
    partition_overwrite,
    publish,
    rule_suite,
    rules,
    sessions,
    small_asset,
)

CASES = tuple(
    map(
        Case.of,
        (
            generator,
            import_time,
            observatory,
            make_test,
            make_run,
            small_asset,
            executors,
            file_loader,
            capture,
            metadata_cleaner,
            orderers,
            rules,
            rule_suite,
            dual_write,
            backfill,
            partition_overwrite,
            sessions,
            publish,
            merge_replay,
            contract_check,
            filter_account,
            online_observer,
            lineage,
        ),
    )
)
