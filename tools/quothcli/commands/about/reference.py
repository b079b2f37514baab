"""`quoth reference`: the page of all commands, `tools/REFERENCE.md`, made of their help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from quothcli.cli import exit_status
from quothcli.cli.command import command, group

_HEADING = """\
# The command `quoth`

Every command with its arguments, options and examples, as `quoth COMMAND --help` prints them. This page is
made by `quoth reference`; a test compares them.

Exit statuses:

```
{statuses}
```

Options that many commands take, before the command or behind it:
"""
COMMON = ("--url", "--ctx", "--timeout", "--format")
"""The options that are explained once, at the top."""

app = group()


@command(app, "reference", "quoth reference > tools/REFERENCE.md")
def reference() -> None:
    """Print a page with all commands, in Markdown."""
    from quothcli.application import tree  # it holds this command, too

    print(page(tree()), end="")


def page(command: Any) -> str:
    """Make the page of a command and of all below it."""
    statuses = re.findall(r"^ {4}\S.*$", inspect.getdoc(exit_status) or "", re.MULTILINE)
    heading = _HEADING.format(statuses="\n".join(line[4:] for line in statuses))
    common = {one.opts[0]: one for one in command.params if one.opts[0] in COMMON}
    table = _table("option", ((_option(one), _meaning(one)) for one in common.values()))
    meanings = {name: _meaning(one) for name, one in common.items()}
    return "\n".join([heading, *table, *entries(command, "quoth", meanings.items())])


def entries(command: Any, path: str, common: Collection[tuple[str, str]] = ()) -> Iterator[str]:
    """Yield the entry of a command and of each below it, depth first.

    common: names and meanings of the options that are only named here.
    """
    below: dict[str, Any] = getattr(command, "commands", {})
    yield f"## {path}\n"
    yield f"{_plain(command.help)}\n"
    if below:
        yield from _table("command", ((name, _sentence(one.help)) for name, one in below.items()))
    parameters = [one for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option"]
    shared = [one for one in options if (one.opts[0], _meaning(one)) in common]
    if not below:
        yield f"```\n{' '.join([path, *(['[OPTIONS]'] if options else []), *map(_shown, arguments)])}\n```\n"
    yield from _table("argument", ((_name(one), one.help) for one in arguments))
    yield from _table("option", ((_option(one), _meaning(one)) for one in options if one not in shared))
    if shared:
        yield f"Common options: {', '.join(f'`{one.opts[0]}`' for one in shared)}.\n"
    if examples := [line[2:] for line in (command.epilog or "").splitlines() if line.startswith("  ")]:
        yield "\n".join(["```sh", *examples, "```\n"])
    for name, one in below.items():
        yield from entries(one, f"{path} {name}", common)


def _table(what: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
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
    """Return the purpose of an option, with its default where the help leaves that to Typer."""
    text = str(option.help)
    default = None if option.required else getattr(option.default, "value", option.default)
    if default in (None, False, "", ()) or "default" in text:
        return text
    return f"{text.removesuffix('.')} (default: {default})."


def _sentence(text: str) -> str:
    return _plain(text).partition("\n")[0]


def _plain(text: str | None) -> str:
    """Return a help text as a page shows it; < begins no tag."""
    return (text or "").replace("\f", "").replace("<", "&lt;").strip()
