"""Names in SQL text: the only way in which the name of a column, a field or a table reaches a statement.

`identifier` quotes any name that a column can have, so that no name can end its quotes. Which names a table can store is
Delta's to say, and asked in one place (`column_texts`); names of folders are narrower (`require_folder_name`).
"""

from __future__ import annotations

import re

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from de_resources.errors import PermanentError

_FOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

# Delta's own list (`DeltaColumnMapping`, `SchemaUtils.checkFieldNames`); a table that maps its names can have them.
_ONLY_MAPPED = re.compile(r"[ ,;{}()\n\t=]")

# The engine puts variables into every SQL text before it is parsed, also between the quotes of a name.
_VARIABLE = "${"


class UnsafeIdentifier(PermanentError):
    """A layer or dataset whose name is no name of a folder."""

    def __init__(self, what: str, name: str) -> None:
        self.what, self.name = what, name
        super().__init__(
            f"The {what} {name[:80]!r} is not usable: it must start with a letter or underscore, hold only letters, "
            "digits and underscores, and have at most 128 characters. Rename it."
        )


class UnquotableName(PermanentError):
    """A column or field whose name cannot be said in SQL."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The column or field {name[:80]!r} has a name that cannot be said in SQL: it is empty, is no valid Unicode, or "
            f"has `{_VARIABLE}`, behind which the engine puts in a variable. Rename it in the transform."
        )


class UnstorableName(PermanentError):
    """A column, or a field inside one, whose name the table cannot have."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The column or field {name[:80]!r} cannot be stored: a name has no space, tab, end of line, and none of "
            ", ; { } ( ) = unless the table maps its names (property `delta.columnMapping.mode`: `name`). "
            "Nothing was written. Set the property, or rename it in the transform."
        )


def identifier(name: str) -> str:
    """Quote the name of a column or field for SQL, whatever signs it has. Raises `UnquotableName`."""
    if not name or _VARIABLE in name or not _is_unicode(name):
        raise UnquotableName(name)
    return _between("`", name)


def quoted_identifier(name: str) -> str:
    """The same for a statement to PostgreSQL that is text; psycopg2's own `Identifier` wants a connection for it."""
    return _between('"', name)


def quoted_path(uri: str) -> str:
    """A table by its location, for SQL: ``delta.`…` ``."""
    return f"delta.{_between('`', uri)}"


def require_folder_name(name: str, what: str) -> None:
    """Raise `UnsafeIdentifier` for a name that would not be one folder everywhere, or would climb out of the lake."""
    if not _FOLDER.fullmatch(name):
        raise UnsafeIdentifier(what, name)


def type_text(type_: DataType) -> str:
    """A type as DDL, with the names of nested fields quoted: `simpleString` would let a name end its struct.

    Two types have the same text where they hold the same, nullability aside. Raises `UnquotableName`.
    """
    match type_:
        case StructType():
            return f"STRUCT<{', '.join(f'{identifier(f.name)}: {type_text(f.dataType)}' for f in type_.fields)}>"
        case ArrayType():
            return f"ARRAY<{type_text(type_.elementType)}>"
        case MapType():
            return f"MAP<{type_text(type_.keyType)}, {type_text(type_.valueType)}>"
    return type_.simpleString()


def column_texts(schema: StructType, *, mapped: bool) -> dict[str, str]:
    """Each column's name and type as DDL; `mapped`: the table maps its names, and so can have any.

    Raises `UnquotableName` and `UnstorableName`.
    """
    texts = {f.name: f"{identifier(f.name)} {type_text(f.dataType)}" for f in schema.fields}
    if not mapped:
        _require_storable(schema)
    return texts


def _require_storable(type_: DataType) -> None:
    match type_:
        case StructType():
            for field in type_.fields:
                if _ONLY_MAPPED.search(field.name):
                    raise UnstorableName(field.name)
                _require_storable(field.dataType)
        case ArrayType():
            _require_storable(type_.elementType)
        case MapType():
            _require_storable(type_.keyType)
            _require_storable(type_.valueType)


def _between(quote: str, text: str) -> str:
    """The text in quotes that it cannot end: a quote inside is doubled, as SQL wants it."""
    return f"{quote}{text.replace(quote, 2 * quote)}{quote}"


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
