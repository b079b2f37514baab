"""Every command and every option says what it is for, and every command shows an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quothcli.application import tree
from quothd.config.config import KEYS


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A command and all below it, as (what is typed, command)."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


TREE = dict(commands(tree(), "quoth"))
LEAVES = {path: command for path, command in TREE.items() if not getattr(command, "commands", None)}

every_command = pytest.mark.parametrize("path", TREE)
every_leaf = pytest.mark.parametrize("path", LEAVES)


def test_the_tree_is_the_one_that_is_documented() -> None:
    top = ["serve", "config", "service", "demo", "pub", "tail", "read", "get", "forward", "topic", "status"]
    top += [
        "count",
        "split",
        "transaction",
        "ping",
        "top",
        "ctx",
        "log",
        "backup",
        "restore",
        "doctor",
        "pipeline",
        "bench",
        "errors",
        "help",
        "completion",
        "reference",
    ]
    topic = ["ls", "info", "create", "set", "rm", "trim", "roll"]
    log = ["ls", "dump", "verify", "repair"]
    config = ["show", "check", "example"]
    service = ["install", "uninstall"]
    ctx = ["add", "use", "ls", "rm"]
    bench = ["ratio", "table", "api", "aio", "latency", "memory", "steps", "spark", "peers"]
    pipeline = ["audit", "archive", "verify", "compact", "replay", "stats"]
    groups = {
        "topic": topic,
        "log": log,
        "config": config,
        "service": service,
        "ctx": ctx,
        "pipeline": pipeline,
        "bench": bench,
        "transaction": ["status", "abort"],
    }
    below = [f"{group} {name}" for group, names in groups.items() for name in names]
    assert sorted(TREE) == sorted(["quoth", *(f"quoth {name}" for name in top + below)])


@every_command
def test_command_says_what_it_is_for(path: str) -> None:
    text = TREE[path].help
    assert text, f"{path} has no help"
    first = text.splitlines()[0]
    assert first.endswith("."), f"{path}: {first!r} is no sentence"
    assert len(first) <= 66 or path == "quoth", f"{path}: {first!r} does not fit into the list of commands"


@every_command
def test_option_says_what_it_is_for(path: str) -> None:
    nameless = [
        option.opts[0]
        for option in TREE[path].params
        if option.name != "help" and not getattr(option, "help", None)
    ]
    assert not nameless, f"{path}: without help: {nameless}"


@every_leaf
def test_command_shows_an_example_of_itself(path: str) -> None:
    epilog = LEAVES[path].epilog or ""
    assert "Examples:" in epilog, f"{path} has no example"
    assert path in epilog, f"{path} is not in its own examples"


@every_leaf
def test_options_in_examples_exist(path: str) -> None:
    """Whatever an example of a command passes to it, the command knows."""
    known = {name for option in LEAVES[path].params for name in (*option.opts, *option.secondary_opts)}
    for line in (LEAVES[path].epilog or "").splitlines():
        begin = line.find(f"{path} ")
        typed = line[begin:].split(" | ")[0].split(" || ")[0] if begin >= 0 else ""
        options = [word for word in typed.split() if word.startswith("--") or word == "-n"]
        assert set(options) <= known, f"{path}: {line}"


def test_every_key_of_the_configuration_is_an_option_of_serve() -> None:
    options = {option.name for option in TREE["quoth serve"].params}
    assert options - {"help", "config", "check"} == set(KEYS)
