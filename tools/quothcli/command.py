"""Making a command: a function, with its help from its docstring and examples below the options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from quothcli import cli
from quothcli.exits import Status
from quothcli.options import with_ctx

Run = Callable[..., int | None]
"""What a command does; it returns an exit status, or None for 0."""
Function = TypeVar("Function", bound=Run)


def group(help_text: str, rows: Mapping[str, cli.Row] | None = None) -> cli.Group:
    """A group of commands below the main one. Alone it prints its help, which is no success.

    rows: commands that are loaded when they are typed.
    """
    return cli.make_group(show_help, help_text, rows=rows)


def show_help(context: cli.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise cli.Exit(Status.USAGE)


def examples_text(examples: Sequence[str]) -> str:
    """Examples as they stand below a help text, their lines kept."""
    return "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])


def spread(name: str, options: Mapping[str, Any]) -> Callable[[Run], Run]:
    """Put options in the place of the parameter of this name, which gets a map of what was typed.

    options: the annotation of each by its name. The map has None for what was not typed.
    """

    def put(function: Run) -> Run:
        @wraps(function)
        def run(**typed: Any) -> int | None:
            typed[name] = {option: typed.pop(option) for option in options}
            return function(**typed)

        parameters: dict[str, inspect.Parameter] = {}
        for one in inspect.signature(function, eval_str=True).parameters.values():
            spread_out = options if one.name == name else {one.name: one.annotation}
            default = None if one.name == name else one.default
            for option, annotation in spread_out.items():
                parameters[option] = inspect.Parameter(
                    option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
                )
        run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        run.__annotations__ = {option: one.annotation for option, one in parameters.items()}
        return run

    return put


def command(group: cli.Group, name: str, *examples: str) -> Callable[[Function], Function]:
    """Put a function into a group as a command."""

    def put(function: Function) -> Function:
        group.add_command(cli.make(with_ctx(function), name, epilog=examples_text(examples)))
        return function

    return put
