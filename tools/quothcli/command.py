"""Making a command: a function, guarded, with its help from its docstring and examples below the options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec

import typer

from quothcli.exits import Status, guarded

Parameters = ParamSpec("Parameters")


def app(help_text: str) -> typer.Typer:
    """A group of commands. Alone it prints its help, which is no success."""
    return typer.Typer(
        help=help_text,
        rich_markup_mode=None,  # plain help: the same in a pipe, and on the screen at once
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def group(help_text: str) -> typer.Typer:
    """A group of commands below the main one."""
    made = app(help_text)
    made.callback(invoke_without_command=True)(show_help)
    return made


def show_help(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Status.USAGE)


def examples_text(examples: Sequence[str]) -> str:
    """Examples as they stand below a help text, their lines kept."""
    return "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])


def command(
    group: typer.Typer, name: str, *examples: str
) -> Callable[[Callable[Parameters, int | None]], Callable[Parameters, int]]:
    """Put a function into a group as a command; it returns an exit status, or None for 0."""

    def put(function: Callable[Parameters, int | None]) -> Callable[Parameters, int]:
        made = guarded(function)
        group.command(name, epilog=examples_text(examples))(made)
        return made

    return put
