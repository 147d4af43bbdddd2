"""A write that would break who reads the dataset says who that is. Pattern: Schema Compatibility Enforcer, at the write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import OutputContext

from de_resources.contract import Contract
from de_resources.delta.write.frames import SchemaMismatch
from de_resources.lineage.readers import recorded_readers


@contextmanager
def naming_readers(context: OutputContext, contract: Contract | None) -> Iterator[None]:
    """Let a `SchemaMismatch` name who reads the columns that the frame lacks, or has with another type.

    They are those of the recorded lineage, of any code location, and the consumers that the contract names. They are looked
    up for a refusal only.
    """
    try:
        yield
    except SchemaMismatch as error:
        readers = {column: _readers(context, contract, column) for column in (*error.missing, *error.mistyped)}
        raise error.read_by(readers) from None


def _readers(context: OutputContext, contract: Contract | None, column: str) -> list[str]:
    instance, own = context.step_context.instance, context.asset_key
    others = (key for key in instance.get_asset_keys() if key != own)
    recorded = recorded_readers(instance, others, own, column) or []
    return [*sorted(recorded), *(contract.consumers if contract else ())]
