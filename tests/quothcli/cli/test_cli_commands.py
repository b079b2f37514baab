"""Every command has help, examples, an entry in `tools/REFERENCE.md`, and is loaded from its module alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kit.machine.commands import Command
from quothcli.application import COMMANDS, root, tree
from quothcli.cli.command import Group, built, group
from quothcli.cli.exit_status import CommandStatus
from quothcli.commands.about.reference import COMMON, entries
from quothd.config.config import KEYS

PAGE = Path(__file__).parents[3] / "tools" / "REFERENCE.md"


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


def test_page_is_the_generated_one_and_has_every_command_and_option(alone: Command) -> None:
    result = alone("reference")
    assert (result.status, result.err) == (0, "")
    text = PAGE.read_text()
    assert text == result.out.decode(), "quoth reference > tools/REFERENCE.md"
    assert all(f"{int(status)}  " in text for status in CommandStatus)
    found = {entry.partition("\n")[0]: entry for entry in text.split("\n## ")[1:]}
    assert list(found) == list(TREE)
    for path, command in TREE.items():
        options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
        assert [name for one in options for name in one.opts if name not in found[path]] == [], path
        assert [name for name in getattr(command, "commands", {}) if f"| `{name}` |" not in found[path]] == []
    common = [option for option in TREE["quoth"].params if option.opts[0] in COMMON]
    assert [text.count(option.help) for option in common] == [1] * len(COMMON), "explained once"


def test_help_with_markup_does_not_break_the_page() -> None:
    def odd(what: Annotated[str, typer.Option("--what", help="Either <this> | that.")] = "a") -> None:
        """Print <this>."""

    made = group("Odd commands.")
    made.command("odd", epilog="\b\nExamples:\n  quoth odd | jq")(odd)
    text = "\n".join(entries(built(made).commands["odd"], "quoth odd"))
    assert "| `--what WHAT` | Either &lt;this> \\| that (default: a). |" in text
    assert "Print &lt;this>." in text
    assert "\nquoth odd | jq\n" in text


def test_command_is_loaded_from_its_module_alone() -> None:
    for name in COMMANDS:
        made = root()
        assert made.get_command(None, name) is not None
        assert {COMMANDS[one].module for one in made.commands} == {COMMANDS[name].module}


def test_listed_help_of_a_command_is_its_own() -> None:
    """The help of a group lists its commands without loading them, which would take long."""
    assert list(TREE["quoth"].commands) == list(COMMANDS)
    for listed in TREE.values():
        if isinstance(listed, Group):
            assert not listed.rows or set(listed.rows) == set(listed.commands)
            for name, row in listed.rows.items():
                assert row.sentence == (listed.commands[name].help or "").partition("\n")[0]
