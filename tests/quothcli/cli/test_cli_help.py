"""Every command and every option says what it is for, and every command shows an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quothcli.application import tree
from quothd.config.config import KEYS


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and all below it, as (what is typed, command)."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


TREE = dict(commands(tree(), "quoth"))
LEAVES = {path: command for path, command in TREE.items() if not getattr(command, "commands", None)}


def test_every_command_and_option_has_a_help() -> None:
    for path, command in TREE.items():
        assert command.help, f"{path} has no help"
        first = command.help.splitlines()[0]
        assert first.endswith("."), f"{path}: {first!r} is no sentence"
        assert len(first) <= 66 or path == "quoth", (
            f"{path}: {first!r} does not fit into the list of commands"
        )
        options = [one for one in command.params if one.name != "help"]
        nameless = [one.opts[0] for one in options if not getattr(one, "help", None)]
        assert not nameless, f"{path}: without help: {nameless}"


def test_every_command_shows_examples_with_options_that_exist() -> None:
    for path, command in LEAVES.items():
        epilog = command.epilog or ""
        assert "Examples:" in epilog, f"{path} has no example"
        assert path in epilog, f"{path} is not in its own examples"
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        for line in epilog.splitlines():
            begin = line.find(f"{path} ")
            typed = line[begin:].split(" | ")[0].split(" || ")[0] if begin >= 0 else ""
            options = [word for word in typed.split() if word.startswith("--") or word == "-n"]
            assert set(options) <= known, f"{path}: {line}"


def test_every_key_of_the_configuration_is_an_option_of_serve() -> None:
    options = {option.name for option in TREE["quoth serve"].params}
    assert options - {"help", "config", "check"} == set(KEYS)
