"""Two topics are the same only where every part of every record is, and their order."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from de_resources.kafka.topic import Record
from de_resources.replication.topic_digest import Fingerprints, _aligned, _fingerprint

pytestmark = pytest.mark.pattern("passthrough_replicator")

RECORD = Record(0, 7, b"key", b"value", 1_700_000_000_000, [("trace", b"1"), ("origin", b"blog")])


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, key=None),
        replace(RECORD, key=b""),
        replace(RECORD, key=b"keyv", value=b"alue"),
        replace(RECORD, value=None),
        replace(RECORD, value=b"Value"),
        replace(RECORD, timestamp=RECORD.timestamp and RECORD.timestamp + 1),
        replace(RECORD, timestamp=None),
        replace(RECORD, headers=None),
        replace(RECORD, headers=[("trace", b"1")]),
        replace(RECORD, headers=[("trace", b"1"), ("origin", b"blag")]),
        replace(RECORD, headers=[("trace", b"1"), ("region", b"blog")]),
        replace(RECORD, headers=[("origin", b"blog"), ("trace", b"1")]),
        replace(RECORD, headers=[("trace", b"1"), ("origin", None)]),
    ],
    ids=lambda record: f"{record.key}|{record.value}|{record.timestamp}|{record.headers}",
)
def test_a_record_that_differs_in_any_part_has_another_fingerprint(other: Record) -> None:
    assert _fingerprint(other) != _fingerprint(RECORD)


def test_where_a_record_lies_is_no_part_of_it() -> None:
    assert _fingerprint(replace(RECORD, partition=3, offset=99)) == _fingerprint(RECORD)


@pytest.mark.parametrize(("source_trimmed", "replica_trimmed"), [(False, False), (True, False), (False, True)])
def test_a_head_that_is_missing_is_a_difference_unless_retention_took_it(
    source_trimmed: bool, replica_trimmed: bool
) -> None:
    whole, tail = array("Q", [1, 2, 3]), array("Q", [2, 3])
    ours, theirs = _aligned(Fingerprints(tail, source_trimmed), Fingerprints(whole, trimmed=False))
    assert (ours == theirs) == source_trimmed
    ours, theirs = _aligned(Fingerprints(whole, trimmed=False), Fingerprints(tail, replica_trimmed))
    assert (ours == theirs) == replica_trimmed
    ours, theirs = _aligned(Fingerprints(array("Q", [1, 3, 2]), trimmed=True), Fingerprints(whole, trimmed=True))
    assert ours != theirs
