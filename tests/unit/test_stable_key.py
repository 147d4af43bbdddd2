"""Keys over immutable facts: one key in every process and engine, and no two lists of facts with the same one."""

import os
import subprocess
import sys
from itertools import product

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from de_resources.stable_key import stable_key, stable_key_column

pytestmark = pytest.mark.pattern("keyed_idempotency")

_PRINT = "from de_resources.stable_key import stable_key; print(stable_key('ключ', 1760054400000), hash('ключ'))"


def test_the_key_is_the_published_digest_of_the_netstrings() -> None:
    # printf '3:abc,1:7,' | sha256sum
    assert stable_key("abc", 7) == "590298b1d7538daff410a5deaeea4631cfe9e6dfd8f996a800eb153c2b0fa6ba"


def test_two_processes_have_one_key_where_hash_has_two() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", _PRINT], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert said[0][0] == said[1][0] == stable_key("ключ", 1760054400000)
    assert said[0][1] != said[1][1], "the trap: Python's own hash of a text is another one in every process"


def test_no_two_lists_of_parts_share_a_key() -> None:
    texts = ["", "a", "1", ",", ":", "1:", "0:,", "a,1:a", "aa", "1:a,", "|"]
    lists = [parts for length in (1, 2, 3) for parts in product(texts, repeat=length)]
    assert len({stable_key(*parts) for parts in lists}) == len(lists)


def test_the_engine_gives_the_same_keys_and_none_for_what_is_unknown(spark: SparkSession) -> None:
    rows = [("", 0), ("a", -1), ("ключ", 1760054400000), ("a,1:b", 7), ("x" * 300, 12), (None, 1)]
    frame = spark.createDataFrame(rows, "who string, at long")
    keys = [row[0] for row in frame.select(stable_key_column(F.col("who"), F.col("at"))).collect()]
    assert keys == [None if who is None else stable_key(who, at) for who, at in rows]
