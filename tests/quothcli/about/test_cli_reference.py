"""`tools/REFERENCE.md` is what the commands say of themselves, and the table of their modules is true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
import typer

from kit.machine.commands import Command
from quothcli.application import COMMANDS, root, tree
from quothcli.cli.command import Group, built, group
from quothcli.cli.exit_status import Status
from quothcli.commands.about.reference import entries, page

PAGE = Path(__file__).parents[3] / "tools" / "REFERENCE.md"


def test_the_page_is_the_one_that_is_generated(alone: Command) -> None:
    told = alone("reference")
    assert (told.status, told.err) == (0, "")
    assert PAGE.read_text() == told.out.decode(), "quoth reference > tools/REFERENCE.md"


def test_every_command_and_option_has_its_entry() -> None:
    text = page(tree())
    entries = {entry.partition("\n")[0]: entry for entry in text.split("\n## ")[1:]}

    def look(command: object, path: str) -> None:
        entry = entries[path]
        for parameter in getattr(command, "params", []):
            names = [name for name in parameter.opts if parameter.param_type_name == "option"]
            assert all(name in entry for name in names if name not in ("-h", "--help")), (path, names)
        for name, below in getattr(command, "commands", {}).items():
            assert f"| `{name}` |" in entry
            look(below, f"{path} {name}")

    look(tree(), "quoth")


def test_help_names_who_does_what() -> None:
    """A program, a person or a file, not a pronoun that a reader has to resolve."""
    riddles = r"\b(nobody|somebody|whoever|his|(is|are) told)\b"
    assert re.findall(rf"(?i)^.*{riddles}.*$", page(tree()), re.MULTILINE) == []


def test_every_exit_status_is_told() -> None:
    text = page(tree())
    assert all(f"{int(status)}  " in text for status in Status)


def test_a_help_that_would_break_the_page_does_not() -> None:
    def odd(what: Annotated[str, typer.Option("--what", help="Either <this> | that.")] = "a") -> None:
        """Print <this>."""

    made = group("Odd commands.")
    made.command("odd", epilog="\b\nExamples:\n  quoth odd | jq")(odd)
    text = "\n".join(entries(built(made).commands["odd"], "quoth odd"))
    assert "| `--what WHAT` | Either &lt;this> \\| that (default: a). |" in text
    assert "Print &lt;this>." in text
    assert "\nquoth odd | jq\n" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_brought_by_its_module_alone(name: str) -> None:
    made = root()
    assert made.get_command(None, name) is not None
    assert {COMMANDS[one].module for one in made.commands} == {COMMANDS[name].module}


def groups(above: Group) -> Iterator[Group]:
    """A group and all below it."""
    yield above
    for below in above.commands.values():
        if isinstance(below, Group):
            yield from groups(below)


def test_the_help_of_a_command_that_is_not_loaded_is_its_own() -> None:
    """The help of a group lists its commands without loading them, which would take long."""
    for listed in groups(tree()):
        assert not listed.rows or set(listed.rows) == set(listed.commands)
        for name, row in listed.rows.items():
            assert row.sentence == (listed.commands[name].help or "").partition("\n")[0]
