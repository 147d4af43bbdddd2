"""The accepted versions of a contract's schema, as a file per contract that is read, compared and reviewed like code.

    {"contract": "silver.visits",
     "versions": [
      {"version": 1, "fields": {
        "visit_id": {"type": "string", "required": true}, …}}]}

A version is written once, by accepting it, and never changed. One that was accepted although it breaks readers says why
(`breaking`); what came before it no longer counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from de_resources.contract.compatibility import Break, Mode, Schema, SchemaField, breaks
from de_resources.contract.contract import Contract
from de_resources.errors import PermanentError

Readers = Callable[[str], Sequence[str]]
"""Who reads a column, for people."""


class BreakingChange(PermanentError):
    """A contract that changed in a way that readers do not survive."""

    def __init__(self, contract: str, mode: Mode, found: Sequence[Break], readers: Mapping[str, Sequence[str]]) -> None:
        self.contract, self.mode, self.breaks, self.readers = contract, mode, tuple(found), readers
        who = "; ".join(f"`{column}`: {', '.join(names)}" for column, names in readers.items() if names)
        super().__init__(
            f"The contract `{contract}` is {mode} and breaks it: {'; '.join(map(str, found))}. "
            f"Who reads it: {who or 'nobody that is known'}. Keep the field, or add the new one beside it as one that may be "
            f"null. If nobody reads it any more: `de contracts accept {contract} --breaking REASON`."
        )


@dataclass(frozen=True)
class ContractVersion:
    """One accepted schema. `breaking`: why it was accepted although it breaks readers; empty otherwise."""

    number: int
    schema: Schema
    breaking: str = ""


@dataclass(frozen=True)
class ContractHistory:
    """The accepted versions of a contract, oldest first."""

    contract: str
    versions: tuple[ContractVersion, ...] = ()

    @classmethod
    def read(cls, folder: Path, contract: str) -> ContractHistory:
        """From the contract's file; without one nothing was accepted yet."""
        path = folder / f"{contract}.json"
        if not path.exists():
            return cls(contract)
        kept = json.loads(path.read_text())
        return cls(contract, tuple(_version(v) for v in kept["versions"]))

    def write(self, folder: Path) -> None:
        """Into the contract's file: one line per field, so that a difference can be read."""
        listed = ",\n".join(_text(version) for version in self.versions)
        (folder / f"{self.contract}.json").write_text(
            f'{{"contract": {json.dumps(self.contract)},\n "versions": [\n{listed}]}}\n'
        )

    @property
    def newest(self) -> Schema | None:
        """The schema that was accepted last."""
        return self.versions[-1].schema if self.versions else None

    def breaks(self, schema: Schema, mode: Mode) -> list[Break]:
        """What the schema breaks. Versions before the last accepted break no longer count."""
        start = max((n for n, version in enumerate(self.versions) if version.breaking), default=0)
        return breaks(schema, {v.number: v.schema for v in self.versions[start:]}, mode)

    def accepted(self, schema: Schema, breaking: str = "") -> ContractHistory:
        """With the schema as the newest version; the same history where it is that already."""
        if schema == self.newest:
            return self
        return replace(self, versions=(*self.versions, ContractVersion(len(self.versions) + 1, schema, breaking)))


def schema_of(contract: Contract) -> Schema:
    """What a version of a contract keeps: names, types and presence."""
    return {c.name: SchemaField(c.type.jsonValue(), not c.nullable, c.has_default) for c in contract.columns}


def require_compatible(contract: Contract, folder: Path, readers: Readers) -> None:
    """Raise `BreakingChange` for a contract that breaks one of its accepted versions, as its mode has it."""
    history, schema = ContractHistory.read(folder, contract.name), schema_of(contract)
    if schema == history.newest:
        return
    found = history.breaks(schema, contract.compatibility)
    if found:
        columns = dict.fromkeys(b.column for b in found)
        raise BreakingChange(contract.name, contract.compatibility, found, {c: readers(c) for c in columns})


def _version(kept: Mapping[str, Any]) -> ContractVersion:
    fields = {
        name: SchemaField(f["type"], f.get("required", False), f.get("default", False))
        for name, f in kept["fields"].items()
    }
    return ContractVersion(kept["version"], fields, kept.get("breaking", ""))


def _text(version: ContractVersion) -> str:
    why = f', "breaking": {json.dumps(version.breaking)}' if version.breaking else ""
    fields = ",\n".join(f"    {json.dumps(name)}: {json.dumps(_kept(field))}" for name, field in version.schema.items())
    return f'  {{"version": {version.number}{why}, "fields": {{\n{fields}}}}}'


def _kept(field: SchemaField) -> dict[str, Any]:
    said = {"required": field.required, "default": field.has_default}
    return {"type": field.type} | {name: True for name, is_so in said.items() if is_so}
