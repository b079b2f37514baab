"""`tools/REFERENCE.md` is made of the help of all commands, and the table of their modules is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kit.machine.commands import Command
from quothcli.application import COMMANDS, root, tree
from quothcli.cli.command import Group, built, group
from quothcli.cli.exit_status import CommandStatus
from quothcli.commands.about.reference import COMMON, entries, page

PAGE = Path(__file__).parents[3] / "tools" / "REFERENCE.md"


def test_page_is_the_generated_one(alone: Command) -> None:
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


def test_common_options_are_explained_once() -> None:
    commands = tree()
    text = page(commands)
    common = [option for option in commands.params if option.opts[0] in COMMON]
    assert len(common) == len(COMMON)
    assert [option.opts[0] for option in common if text.count(getattr(option, "help", "")) != 1] == []


def test_every_exit_status_is_explained() -> None:
    text = page(tree())
    assert all(f"{int(status)}  " in text for status in CommandStatus)


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


def groups(above: Group) -> Iterator[Group]:
    """Yield a group and all below it."""
    yield above
    for below in above.commands.values():
        if isinstance(below, Group):
            yield from groups(below)


def test_listed_help_of_a_command_is_its_own() -> None:
    """The help of a group lists its commands without loading them, which would take long."""
    for listed in groups(tree()):
        assert not listed.rows or set(listed.rows) == set(listed.commands)
        for name, row in listed.rows.items():
            assert row.sentence == (listed.commands[name].help or "").partition("\n")[0]
