"""The application behind `quoth`: composes its commands, runs one, turns the outcome into an exit status."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main

from quothcli import completion
from quothcli.chosen import Chosen
from quothcli.command import app as make_app
from quothcli.command import examples_text, show_help
from quothcli.exits import Status, complain, guarded, open_streams
from quothcli.options import Ctx, Form, Timeout, Url
from quothcli.usage import mistake
from quothwire.variables import check_variables

COMMANDS = {
    "serve": "serve",
    "config": "config",
    "service": "service",
    "demo": "demo",
    "pub": "publish",
    "tail": "reading",
    "read": "reading",
    "get": "reading",
    "count": "ranges",
    "split": "ranges",
    "forward": "forward",
    "topic": "topics",
    "transaction": "transaction",
    "status": "status",
    "ping": "status",
    "top": "top",
    "ctx": "ctx",
    "log": "offline",
    "backup": "backup",
    "restore": "backup",
    "doctor": "doctor.command",
    "pipeline": "pipeline.command",
    "bench": "bench.commands",
    "errors": "errors",
    "help": "pages",
    "completion": "shells",
    "reference": "reference",
}
"""The module that brings each command, in the order in which they are listed. Loading all of them takes
longer than most commands do."""
_TypedWrongly: Any = typer.BadParameter.__base__
"""What is raised for everything that was typed wrongly; where it comes from depends on typer's version."""
_EXAMPLES = (
    "quoth serve --dir quoth-data",
    "quoth pub greetings 'hello, world'",
    "quoth tail greetings --since -1h",
    "quoth demo",
)


def run(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit status."""
    open_streams()
    return guarded(_run)(arguments)


def app(typed: Sequence[str] = ()) -> typer.Typer:
    """All commands, or those of one module, if what was typed begins with a command."""
    made = make_app("Quoth, a log-based message broker: what was said, in order, for as long as you keep it.")
    made.callback(invoke_without_command=True, epilog=examples_text(_EXAMPLES))(_before)
    only = COMMANDS.get(typed[0]) if typed else None
    for module in [only] if only else dict.fromkeys(COMMANDS.values()):
        import_module(f"quothcli.{module}").add(made)
    return made


def tree(typed: Sequence[str] = ()) -> Any:
    """The same as typer's group, ready to run, in the order in which the commands are listed."""
    group: Any = typer.main.get_command(app(typed))
    group.commands = {name: group.commands[name] for name in COMMANDS if name in group.commands}
    return group


def _run(arguments: Sequence[str]) -> int:
    """Parse and invoke, without what typer does about errors by itself: `guarded` knows better."""
    if shell := os.environ.get(completion.VARIABLE):
        completion.answer(shell, arguments, COMMANDS, tree)
        return Status.DONE
    group = tree(arguments)
    try:
        with group.make_context("quoth", list(arguments)) as context:
            return int(group.invoke(context) or Status.DONE)
    except typer.Exit as end:
        return end.exit_code
    except _TypedWrongly as problem:
        text, hint = mistake(problem)
        complain("usage", text, hint or f"`{_path(problem)} --help` shows how")
        return Status.USAGE


def _keys() -> Iterable[str]:
    """The daemon's keys, for whoever has set a variable that is none of the command's."""
    from quothd.config import KEYS

    return KEYS


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"quoth {version('quoth')}")
        raise typer.Exit


def _path(problem: Any) -> str:
    """The command that was typed wrongly."""
    context = getattr(problem, "ctx", None)
    return str(context.command_path) if context is not None else "quoth"


def _before(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_version)
    ] = False,
    url: Url = None,
    ctx: Ctx = None,
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Keep what was said before the command. Raises ``bad_setting`` for a variable that does not exist."""
    check_variables(os.environ, _keys)
    context.obj = Chosen(url, timeout, form, ctx)
    show_help(context)
