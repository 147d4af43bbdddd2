"""Reading a `MergeRule` from an asset's metadata, in our terms or in `dagster_delta`'s."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from dagster_delta import MergeConfig, MergeType

from de_resources.contract import Contract
from de_resources.delta.write.merge import MergeRule, Ties, Vanished
from de_resources.errors import PermanentError

_NAME = r"(\w+|`(?:[^`]|``)+`)"
_EQUALITY = re.compile(rf"\s*(\w+)\.{_NAME}\s*=\s*(\w+)\.{_NAME}\s*")
_TERMS = re.compile(r"\s+AND\s+(?=(?:[^`]*`[^`]*`)*[^`]*$)", re.IGNORECASE)  # not between the quotes of a name


def merge_rule(metadata: Mapping[str, Any], contract: Contract | None, config: MergeConfig | None) -> MergeRule:
    """The rule for one asset.

    `merge_keys` (columns), or `merge_predicate` in dagster-delta's form (`s.id = t.id AND s.b = t.b`; equalities only,
    it is parsed and never pasted), or the contract's key. `merge_order`: ordering column. `merge_deleted`: soft-delete
    column. `merge_vanished`: `keep` or `delete`. `merge_ties`: `refuse` or `replace`. dagster-delta's merge types
    translate as far as they are declarative; `custom` does not and raises `PermanentError`, as other words do.
    """
    kind = config.merge_type if config else MergeType.upsert
    if kind == MergeType.custom:
        raise PermanentError(
            "The merge type `custom` pastes SQL clauses and is not supported. Use `upsert`, `update_only`, "
            "`deduplicate_insert` or `replace_and_delete_unmatched` with `merge_order` and `merge_deleted`."
        )
    predicate = metadata.get("merge_predicate") or (config.predicate if config else None)
    vanished = "delete" if kind == MergeType.replace_delete_unmatched else metadata.get("merge_vanished", "keep")
    if vanished not in get_args(Vanished):
        raise PermanentError(f"`merge_vanished` is {vanished!r}; it can be `keep` or `delete`.")
    ties = metadata.get("merge_ties", "refuse")
    if ties not in get_args(Ties):
        raise PermanentError(f"`merge_ties` is {ties!r}; it can be `refuse` or `replace`.")
    return MergeRule(
        key=_key(metadata.get("merge_keys"), predicate, contract),
        order=metadata.get("merge_order"),
        deleted=metadata.get("merge_deleted"),
        vanished=cast("Vanished", vanished),
        insert=kind != MergeType.update_only,
        update=kind != MergeType.deduplicate_insert,
        ties=cast("Ties", ties),
    )


def _key(declared: Sequence[str] | None, predicate: str | None, contract: Contract | None) -> tuple[str, ...]:
    if declared:
        return tuple(declared)
    if predicate:
        return tuple(_columns_of(predicate))
    return contract.key if contract else ()


def _columns_of(predicate: str) -> Sequence[str]:
    columns = []
    for term in _TERMS.split(predicate.strip()):
        match = _EQUALITY.fullmatch(term)
        if match is None or match[2] != match[4] or match[1] == match[3]:
            raise PermanentError(
                f"The merge predicate term {term!r} is not an equality of one column in source and target "
                "(`s.id = t.id`). Name the key columns in `merge_keys`."
            )
        columns.append(_unquoted(match[2]))
    return columns


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
