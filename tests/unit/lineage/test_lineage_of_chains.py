"""Random chains of transformations: the lineage of the plan is the one that was noted while building the chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from de_resources.lineage import LineageKind, column_lineage

pytestmark = pytest.mark.pattern("fine_grained_tracker")

NAMES = (
    "plain",
    "with space",
    "comma, space",
    "list[0]",
    "call(x)",
    "back`tick",
    "hash#1",
    "dotted.name",
    "a AS b",
    "ü",
)
Origins = dict[tuple[str, str], LineageKind]


@dataclass
class Chain:
    """A frame together with what its builder knows about it."""

    frame: DataFrame
    columns: dict[str, Origins]
    dependencies: set[tuple[str, str, str]] = field(default_factory=set)
    fresh: int = 0

    def name(self, base: str) -> str:
        self.fresh += 1
        return f"{base}{self.fresh}"

    def depends(self, kind: str, *names: str) -> None:
        self.dependencies |= {(kind, *origin) for name in names for origin in self.columns[name]}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def col(name: str) -> F.Column:
    return F.col(quoted(name))


def at_least(kind: LineageKind, *parts: Origins) -> Origins:
    result: Origins = {}
    for part in parts:
        for origin, found in part.items():
            result[origin] = max(kind, found, result.get(origin, kind))
    return result


def read(source: DataFrame, alias: str) -> Chain:
    return Chain(source, {name: {(alias, name): LineageKind.DIRECT} for name in source.columns})


Draw = Callable[[st.SearchStrategy], object]


def select(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    kept = draw(st.lists(st.sampled_from(sorted(chain.columns)), min_size=1, unique=True))
    chain.frame = chain.frame.select(*[col(name) for name in kept])
    chain.columns = {name: chain.columns[name] for name in kept}


def compute(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    names = draw(st.lists(st.sampled_from(sorted(chain.columns)), min_size=1, max_size=3))
    target = chain.name(draw(st.sampled_from(NAMES)))
    text = draw(st.sampled_from(["", "-", "(", ")", "], [", " AS x", "#", "it's"]))
    value = F.concat_ws("|", F.lit(text), *[col(name).cast("string") for name in names])
    chain.frame = chain.frame.withColumn(target, value)
    chain.columns[target] = at_least(LineageKind.TRANSFORMED, *[chain.columns[name] for name in names])


def constant(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    target = chain.name(draw(st.sampled_from(NAMES)))
    chain.frame = chain.frame.withColumn(target, F.lit("a, b"))
    chain.columns[target] = {}


def rank(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    key, order = (draw(st.sampled_from(sorted(chain.columns))) for _ in range(2))
    target = chain.name(draw(st.sampled_from(NAMES)))
    chain.frame = chain.frame.withColumn(target, F.row_number().over(Window.partitionBy(col(key)).orderBy(col(order))))
    chain.columns[target] = at_least(LineageKind.AGGREGATED, chain.columns[key], chain.columns[order])


def rename(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    old = draw(st.sampled_from(sorted(chain.columns)))
    new = chain.name(draw(st.sampled_from(NAMES)))
    chain.frame = chain.frame.withColumnRenamed(old, new)
    chain.columns = {new if name == old else name: found for name, found in chain.columns.items()}


def keep(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    name = draw(st.sampled_from(sorted(chain.columns)))
    chain.frame = chain.frame.where(col(name).isNotNull())
    chain.depends("filter", name)


def deduplicate(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    name = draw(st.sampled_from(sorted(chain.columns)))
    chain.frame = chain.frame.dropDuplicates([name])
    chain.depends("deduplicate", name)


def group(chain: Chain, draw: Draw, _inputs: list[Chain]) -> None:
    key, value = (draw(st.sampled_from(sorted(chain.columns))) for _ in range(2))
    target = chain.name(draw(st.sampled_from(NAMES)))
    chain.frame = chain.frame.groupBy(col(key)).agg(F.max(col(value)).alias(target))
    chain.depends("group", key)
    chain.columns = {key: chain.columns[key], target: at_least(LineageKind.AGGREGATED, chain.columns[value])}


def join(chain: Chain, draw: Draw, inputs: list[Chain]) -> None:
    right = draw(st.sampled_from(inputs))
    left_key, right_key = draw(st.sampled_from(sorted(chain.columns))), draw(st.sampled_from(sorted(right.columns)))
    names = {name: chain.name(name) for name in right.columns}
    side = right.frame.select(*[F.col(old).alias(new) for old, new in names.items()])
    chain.frame = chain.frame.join(side, col(left_key).cast("string") == F.col(names[right_key]).cast("string"))
    chain.columns |= {new: right.columns[old] for old, new in names.items()}
    chain.depends("join", left_key, names[right_key])


def union(chain: Chain, draw: Draw, inputs: list[Chain]) -> None:
    right = draw(st.sampled_from(inputs))
    picked = [draw(st.sampled_from(sorted(right.columns))) for _ in chain.columns]
    texts = [col(name).cast("string").alias(name) for name in chain.columns]
    below = right.frame.select(*[F.col(name).cast("string").alias(f"p{at}") for at, name in enumerate(picked)])
    chain.frame = chain.frame.select(*texts).union(below)
    pairs = zip(chain.columns.items(), picked, strict=True)
    chain.columns = {
        name: at_least(LineageKind.TRANSFORMED, found, right.columns[other]) for (name, found), other in pairs
    }


STEPS = (select, compute, constant, rank, rename, keep, deduplicate, group, join, union)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_chain(visits: DataFrame, users: DataFrame, data: st.DataObject):
    inputs = [read(visits, "bronze.visits"), read(users, "silver.users")]
    start = inputs[data.draw(st.integers(0, 1))]
    chain = Chain(start.frame, dict(start.columns))
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=7)):
        step(chain, data.draw, inputs)
    found = column_lineage(chain.frame, ["bronze.visits", "silver.users"])
    assert found.complete, (found.reasons, chain.frame.columns)
    columns = {name: {(by.source, by.column): by.kind for by in origins} for name, origins in found.columns.items()}
    assert columns == chain.columns
    assert {(by.kind.value, by.source, by.column) for by in found.dependencies} == chain.dependencies
