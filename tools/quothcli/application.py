"""The application behind `quoth`: composes its commands, runs one, turns the outcome into an exit status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.main

from quothcli import demo, forward, offline, publish, reading, serve, status, topics
from quothcli.bench import commands as bench
from quothcli.command import app as make_app
from quothcli.command import examples_text, show_help
from quothcli.exits import Status, complain, guarded, open_streams
from quothcli.options import Chosen, Form, Timeout, Url

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


def app() -> typer.Typer:
    """All commands."""
    made = make_app("Quoth, a log-based message broker: what was said, in order, for as long as you keep it.")
    made.callback(invoke_without_command=True, epilog=examples_text(_EXAMPLES))(_before)
    for noun in (serve, demo, publish, reading, forward, topics, status, offline, bench):
        noun.add(made)
    return made


def _run(arguments: Sequence[str]) -> int:
    """Parse and invoke, without what typer does about errors by itself: `guarded` knows better."""
    group = typer.main.get_command(app())
    try:
        with group.make_context("quoth", list(arguments)) as context:
            return int(group.invoke(context) or Status.DONE)
    except typer.Exit as end:
        return end.exit_code
    except _TypedWrongly as problem:
        complain("usage", problem.format_message(), f"`{_path(problem)} --help` shows how")
        return Status.USAGE


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
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Keep what was said before the command."""
    context.obj = Chosen(url, timeout, form)
    show_help(context)
