"""Keys that are the same in every process, engine and year: SHA-256 over facts that never change.

Pattern: Keyed Idempotency. Each part is written with its length in bytes, as in D. J. Bernstein's netstrings, so that no two
different lists of parts have one encoding: `("ab", "c")` and `("a", "bc")` differ, whatever the parts contain. Python's
`hash` is no such key: for text it is another one in every process. Nor is it a fact when
a producer says that something happened.
"""

from __future__ import annotations

from hashlib import sha256

from pyspark.sql import Column
from pyspark.sql import functions as F


def stable_key(*parts: str | int) -> str:
    """The key of these parts, 64 hexadecimal digits. Numbers are written in decimal."""
    encoded = (str(part).encode() for part in parts)
    return sha256(b"".join(b"%d:%s," % (len(part), part) for part in encoded)).hexdigest()


def stable_key_column(*parts: Column) -> Column:
    """What `stable_key` gives for each row's parts, which are text or whole numbers; null where one of them is null."""
    texts = [part.cast("string") for part in parts]
    framed = [F.concat(F.octet_length(text).cast("string"), F.lit(":"), text, F.lit(",")) for text in texts]
    return F.sha2(F.concat(*framed), 256)
