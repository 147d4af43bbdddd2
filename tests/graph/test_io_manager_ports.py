"""What goes in and out: frames of assets, also through Dagster's branches; all else is refused in one sentence."""

from pathlib import Path
from typing import Any, Optional

import dagster as dg
import pytest
from dagster._core.storage.branching.branching_io_manager import BranchingIOManager
from io_manager_support import Shop, asset
from pyspark.sql import DataFrame

from de_resources.delta.ports import NotAFrame, NotAnAsset


def users(shop: Shop, *ids: int) -> dg.AssetsDefinition:
    return asset("users", lambda _: shop.frame([(id_,) for id_ in ids], "id long"))


@pytest.mark.pattern("data_overwrite")
@pytest.mark.parametrize("annotation", [Optional[DataFrame], DataFrame | None, Any], ids=str)  # noqa: UP045 - both spellings
def test_an_input_may_be_annotated_as_optional(shop: Shop, annotation: Any) -> None:
    seen: list[int] = []

    def reader(users: Any) -> None:
        seen.extend(row.id for row in users.collect())

    reader.__annotations__["users"] = annotation
    shop.seed("users", [(7,)], "id long", None)
    read = dg.asset(ins={"users": dg.AssetIn(["silver", "users"])})(reader)
    shop.run(users(shop), read, select=[read])
    assert seen == [7]


def test_an_input_that_wants_no_frame_is_refused(shop: Shop) -> None:
    @dg.asset(ins={"users": dg.AssetIn(["silver", "users"])})
    def reader(users: list[int]) -> None: ...

    shop.seed("users", [(7,)], "id long", None)
    error = shop.failure(users(shop), reader, select=[reader])
    assert isinstance(error, NotAFrame)
    assert (error.asset, error.what) == ("silver/users", "input")


def test_an_output_that_is_no_frame_is_refused(shop: Shop) -> None:
    @dg.asset(key=["silver", "numbers"])
    def numbers() -> list[int]:
        return [1]

    error = shop.failure(numbers)
    assert isinstance(error, NotAFrame)
    assert (error.asset, error.what, error.type) == ("silver/numbers", "output", "a `list`")


def failed(job: dg.JobDefinition) -> NotAnAsset:
    with pytest.raises(NotAnAsset) as caught:
        job.execute_in_process()
    return caught.value


@pytest.mark.pattern("data_overwrite")
def test_values_of_plain_ops_are_refused_with_what_to_do(shop: Shop) -> None:
    @dg.op
    def make() -> DataFrame:
        return shop.frame([(1,)], "id long")

    @dg.job(resource_defs={"io_manager": shop.manager})
    def writing() -> None:
        make()

    error = failed(writing)
    assert error.name == "make.result"
    assert "Make an asset of it" in str(error)
    assert not shop.root.exists()


def users_of_two_ops(shop: Shop, between: dg.Out) -> dg.AssetsDefinition:
    """An asset that is a graph: what its first op gives to the second one belongs to no asset."""

    @dg.op(out=between)
    def read() -> DataFrame:
        return shop.frame([(1,)], "id long")

    @dg.op
    def double(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("2 * id AS id")

    @dg.graph_asset(key=["silver", "users"])
    def users() -> Any:
        return double(read())

    return users


def test_what_stays_inside_a_graph_asset_is_refused_with_what_to_do(shop: Shop) -> None:
    error = shop.failure(users_of_two_ops(shop, dg.Out()))
    assert isinstance(error, NotAnAsset)
    assert error.name in ("read.result", "users.read.result")
    assert "give it an IO manager for the values of ops (`io_manager_key`)" in str(error)
    assert not shop.root.exists()


def test_what_leaves_a_graph_asset_is_its_table(shop: Shop) -> None:
    users = users_of_two_ops(shop, dg.Out(io_manager_key="values"))
    resources = {"io_manager": shop.manager, "values": dg.mem_io_manager}
    dg.materialize([users], instance=shop.instance, resources=resources)
    assert shop.rows("users") == [(2,)]


def test_an_input_of_an_op_that_no_asset_writes_is_refused(shop: Shop) -> None:
    @dg.op(ins={"users": dg.In(DataFrame, input_manager_key="lake", asset_key=dg.AssetKey(["silver", "users"]))})
    def read(users: DataFrame) -> None: ...

    @dg.job(resource_defs={"lake": shop.manager})
    def reading() -> None:
        read()

    error = failed(reading)
    assert error.name == "read.users"


@pytest.mark.pattern("data_overwrite")
def test_a_branch_reads_production_until_it_has_its_own(shop: Shop, tmp_path: Path) -> None:
    branch = Shop(shop.engine, tmp_path / "branch", instance=shop.instance)
    both = BranchingIOManager(parent_io_manager=shop.manager, branch_io_manager=branch.manager, branch_name="mine")
    seen: list[list[int]] = []

    @dg.asset(ins={"users": dg.AssetIn(["silver", "users"])})
    def reader(users: DataFrame) -> None:
        seen.append([row.id for row in users.collect()])

    def run(definition: dg.AssetsDefinition, only: dg.AssetsDefinition) -> None:
        resources = {"io_manager": both}
        dg.materialize([definition, reader], instance=shop.instance, resources=resources, selection=[only])

    shop.seed("users", [(1,)], "id long", None)
    run(users(shop, 2), reader)
    run(users(shop, 2), users(shop, 2))
    run(users(shop, 2), reader)
    assert seen == [[1], [2]]
    assert (shop.rows("users"), branch.rows("users")) == ([(1,)], [(2,)])
