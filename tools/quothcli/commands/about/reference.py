"""`quoth reference` and `quoth completion`: a page and a shell's script, both made of all commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any, Literal

from typer import Argument
from typer._completion_shared import get_completion_script

from quothcli.cli import exit_status
from quothcli.cli.command import command, group
from quothcli.cli.options import COMPLETION_VARIABLE

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
COMMON = ("--url", "--ctx", "--key-file", "--timeout", "--format")
"""The options that are explained once, at the top."""

app = group()


@command(app, "reference", "quoth reference > tools/REFERENCE.md")
def reference() -> None:
    """Print a page with all commands, in Markdown."""
    from quothcli.application import tree  # it holds this command, too

    print(page(tree()), end="")


@command(
    app,
    "completion",
    'eval "$(quoth completion bash)"',
    "quoth completion zsh > ~/.zfunc/_quoth",
    "quoth completion fish > ~/.config/fish/completions/quoth.fish",
)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(help="The shell that is to complete.")],
) -> None:
    """Print the script that lets a shell complete what is typed.

    It completes commands, options, contexts, and topics of the broker. In ~/.bashrc stands the first example;
    zsh finds the file in any folder of its fpath, fish in its own.
    """
    print(get_completion_script(prog_name="quoth", complete_var=COMPLETION_VARIABLE, shell=shell))


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
