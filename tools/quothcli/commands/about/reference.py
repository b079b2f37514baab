"""`quoth reference`: the page of all commands, `tools/REFERENCE.md`, from what they say of themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from quothcli.cli import exit_status
from quothcli.cli.command import command

_HEADING = """\
# The command `quoth`

Every command with its arguments, options and examples, as `quoth COMMAND --help` tells them. This page is
made by `quoth reference`; a test compares them.

Exit statuses:

```
{statuses}
```
"""


def add(app: typer.Typer) -> None:
    """Put `reference` into the command."""
    command(app, "reference", "quoth reference > tools/REFERENCE.md")(reference)


def reference() -> None:
    """Print a page with all commands, in Markdown."""
    from quothcli.application import tree  # it holds this command, too

    print(page(tree()), end="")


def page(command: Any) -> str:
    """The page of a command and of all below it."""
    statuses = re.findall(r"^ {4}\S.*$", inspect.getdoc(exit_status) or "", re.MULTILINE)
    heading = _HEADING.format(statuses="\n".join(line[4:] for line in statuses))
    return "\n".join([heading, *walk(command, "quoth")])


def walk(command: Any, path: str) -> Iterator[str]:
    """The entry of a command and of each below it, depth first."""
    below: dict[str, Any] = getattr(command, "commands", {})
    yield f"## {path}\n"
    yield f"{_plain(command.help)}\n"
    if below:
        yield from _table("command", ((name, _sentence(one.help)) for name, one in below.items()))
    parameters = [one for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option"]
    if not below:
        yield f"```\n{' '.join([path, *(['[OPTIONS]'] if options else []), *map(_shown, arguments)])}\n```\n"
    yield from _table("argument", ((_name(one), one.help) for one in arguments))
    yield from _table("option", ((_option(one), _meaning(one)) for one in options))
    if examples := [line[2:] for line in (command.epilog or "").splitlines() if line.startswith("  ")]:
        yield "\n".join(["```sh", *examples, "```\n"])
    for name, one in below.items():
        yield from walk(one, f"{path} {name}")


def _table(what: str, rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    cells = [f"| `{name}` | {_plain(text).replace('|', chr(92) + '|')} |" for name, text in rows]
    if cells:
        yield "\n".join([f"| {what} | |", "| --- | --- |", *cells, ""])


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _shown(argument: Any) -> str:
    several = "..." if argument.nargs != 1 else ""
    name = _name(argument)
    return f"{name}{several}" if argument.required else f"[{name}{several}]"


def _option(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    metavar = option.metavar or option.opts[0].lstrip("-").upper()
    return names if option.is_flag else f"{names} {metavar}"


def _meaning(option: Any) -> str:
    """What an option is for, with its default where the help leaves that to typer."""
    text = str(option.help)
    default = None if option.required else getattr(option.default, "value", option.default)
    if default in (None, False, "", ()) or "default" in text:
        return text
    return f"{text.removesuffix('.')} (default: {default})."


def _sentence(text: str) -> str:
    return _plain(text).partition("\n")[0]


def _plain(text: str | None) -> str:
    """Help as a page shows it; < begins no tag."""
    return (text or "").replace("\f", "").replace("<", "&lt;").strip()
