"""`tools/REFERENCE.md` is what the commands say of themselves, and the table of their modules is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from kit.commands import Command
from kit.deadlines import DEADLINE_S
from quothcli.application import COMMANDS, app, tree
from quothcli.exits import Status
from quothcli.reference import page, walk

PAGE = Path(__file__).parents[2] / "tools" / "REFERENCE.md"


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


def test_every_exit_status_is_told() -> None:
    text = page(tree())
    assert all(f"{int(status)}  " in text for status in Status)


def test_a_help_that_would_break_the_page_does_not() -> None:
    made = typer.Typer(add_completion=False)

    @made.command("odd", epilog="\b\nExamples:\n  quoth odd | jq")
    def odd(what: str = typer.Option("a", "--what", help="Either <this> | that.")) -> None:
        """Print <this>."""

    text = "\n".join(walk(typer.main.get_command(made), "quoth odd"))
    assert "| `--what WHAT` | Either &lt;this> \\| that (default: a). |" in text
    assert "Print &lt;this>." in text
    assert "\nquoth odd | jq\n" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_brought_by_its_module_alone(name: str) -> None:
    brought = typer.main.get_command(app([name]))
    assert name in getattr(brought, "commands", {})
    assert {COMMANDS[one] for one in getattr(brought, "commands", {})} == {COMMANDS[name]}


def test_every_command_is_in_the_table() -> None:
    assert set(getattr(typer.main.get_command(app()), "commands", {})) == set(COMMANDS)


def test_a_command_of_a_client_loads_nothing_of_the_broker() -> None:
    """Which would take longer than the command."""
    code = (
        "import sys; from quothcli.application import tree; tree(['pub', 't']); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'quothd', 'quothlog', 'rich'}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert told.stdout.split() == []
