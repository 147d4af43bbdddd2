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
    make_run,
    make_test,
    merge_replay,
    metadata_cleaner,
    online_observer,
    partition_overwrite,
    publish,
    rules,
    small_asset,
)

CASES = tuple(
    map(
        Case.of,
        (
            generator,
            import_time,
            make_test,
            make_run,
            small_asset,
            executors,
            file_loader,
            capture,
            metadata_cleaner,
            rules,
            dual_write,
            backfill,
            partition_overwrite,
            publish,
            merge_replay,
            contract_check,
            filter_account,
            online_observer,
        ),
    )
)
