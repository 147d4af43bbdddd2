"""Who may import whom. Every import counts, also one inside a function and one for types only."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter

import pytest
from own_modules import imports, trees

from de_assets.catalogue import PROJECT

# The sources are parsed once for both modules that ask for imports.
pytestmark = pytest.mark.xdist_group("imports")

LAYERS = ("bronze", "silver", "gold", "serving")
"""In the order in which data walks; what tests and other teams get (`staging`) is behind all of them."""

CLI = "de_assets.cli"
REGISTERS = f"{CLI}.application"


def inside(*packages: str) -> Callable[[str], bool]:
    return lambda module: any(module == package or module.startswith(f"{package}.") for package in packages)


def arrows(origin: str, *to: str) -> list[str]:
    """Imports that lead from a package into others."""
    modules = filter(inside(origin), trees())
    return [f"{module} -> {found}" for module in modules for found in imports(module) if inside(*to)(found)]


def test_the_modules_are_found() -> None:
    assert len(trees()) > 300
    assert "de_assets.gold.sessions_live -> de_assets.dataset" in arrows("de_assets.gold", "de_assets.dataset")
    assert "de_assets.cli.run -> de_assets.cli.ui" in arrows(CLI, CLI), "an import inside a function"


@pytest.mark.parametrize(
    ("origin", "never"),
    [
        ("de_resources", ["de_checks", "de_assets"]),
        ("de_checks", ["de_assets"]),
        ("de_assets.transforms", ["dagster", *(f"de_assets.{layer}" for layer in (*LAYERS, "staging", "automation"))]),
        # Jobs that work on whatever they are given.
        ("de_assets.automation.maintenance", [f"de_assets.{d}" for d in (*LAYERS, "staging", "contracts", "sources")]),
        *(
            (f"de_assets.{layer}", [f"de_assets.{later}" for later in (*LAYERS[place + 1 :], "staging", "dashboards")])
            for place, layer in enumerate(LAYERS)
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nobody_goes_back_upstairs(origin: str, never: list[str]) -> None:
    assert arrows(origin, *never) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: {found for found in imports(module) if found in trees()} - {module} for module in trees()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def _called(tree: ast.AST) -> set[str]:
    """The last names of what is called, or is used as a decorator."""
    nodes = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    nodes += [d for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for d in node.decorator_list]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} | {
        node.id for node in nodes if isinstance(node, ast.Name)
    }


def test_commands_are_registered_in_one_place() -> None:
    registering = {"Typer", "command", "callback", "add_typer"}
    found = {module for module in filter(inside(CLI), trees()) if _called(trees()[module]) & registering}
    assert found == {REGISTERS}
    assert {a for a in arrows(CLI, REGISTERS) if not a.startswith(f"{CLI} ")} == set(), (
        "only the entry point asks for it"
    )


def test_checks_are_made_in_one_place() -> None:
    making = {"asset_check", "multi_asset_check"}
    # The location of the dashboards has to load where these packages do not.
    assert {m for m in trees() if _called(trees()[m]) & making} == {"de_checks.factory", "de_assets.dashboards.lag"}


def test_a_topic_is_asked_by_one_client_and_what_goes_wrong_with_it_is_in_one_module() -> None:
    """Producers are their owners' affair: each has guarantees of its own."""
    asking = {m for m in trees() if _called(trees()[m]) & {"AdminClient", "TopicCollection"}}
    own = {"de_resources.local.kafka_server", "de_resources.local.topics"}
    assert asking - own == {"de_resources.kafka.broker", "de_resources.kafka.topic"}
    consuming = {
        m
        for m in trees()
        if "confluent_kafka.Consumer" in _imported_names(trees()[m]) and "Consumer" in _called(trees()[m])
    }
    assert consuming == {"de_resources.kafka.group", "de_resources.kafka.topic"}
    room = filter(inside("de_resources.kafka"), trees())
    failing = {m for m in room for node in trees()[m].body if isinstance(node, ast.ClassDef) and _is_error(node)}
    assert failing == {"de_resources.kafka.errors"}


def _imported_names(tree: ast.AST) -> set[str]:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {f"{node.module}.{alias.name}" for node in found for alias in node.names}


def _is_error(node: ast.ClassDef) -> bool:
    return bool({base.id for base in node.bases if isinstance(base, ast.Name)} & {"PermanentError", "TransientError"})


def test_importing_the_command_line_changes_nothing_in_the_process() -> None:
    modules = sorted(filter(inside(CLI), trees()))
    program = """
import importlib, json, os, signal, sys, warnings
EVERYTHING = ("ignore", None, Warning, None, 0)
def state():
    handlers = [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())]
    return [dict(os.environ), EVERYTHING in warnings.filters, handlers, os.getcwd()]
before = state()
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
assert state() == before, [pair for pair in zip(before, state()) if pair[0] != pair[1]]
"""
    # Libraries set variables where they are missing: those that this process already has would hide it.
    bare = {name: os.environ[name] for name in ("HOME", "PATH")}
    command = [sys.executable, "-c", program, json.dumps(modules)]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=300, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
