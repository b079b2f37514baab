"""Making a command: a function, with its help from its docstring and examples below the options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from quothcli.exits import Status
from quothcli.options import with_ctx
from quothwire.paths import given_path

Run = Callable[..., int | None]
"""What a command does; it returns an exit status, or None for 0."""
Function = TypeVar("Function", bound=Run)


def app(help_text: str) -> typer.Typer:
    """A group of commands. Alone it prints its help, which is no success."""
    return typer.Typer(
        help=help_text,
        rich_markup_mode=None,  # plain help: the same in a pipe, and on the screen at once
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


def command(group: typer.Typer, name: str, *examples: str) -> Callable[[Function], Function]:
    """Put a function into a group as a command."""

    def put(function: Function) -> Function:
        group.command(name, epilog=examples_text(examples))(with_ctx(_without_empty_paths(function)))
        return function

    return put


def _without_empty_paths(function: Run) -> Run:
    """Let every argument and option that is a path raise ``bad_setting`` if it is empty."""

    @wraps(function)
    def run(**typed: Any) -> int | None:
        return function(**typed)

    signature = inspect.signature(function, eval_str=True)
    for one in signature.parameters.values():
        kind, *told = get_args(one.annotation) if get_origin(one.annotation) is Annotated else (None,)
        if told and Path in (kind, *_inside(kind)):
            info = told[0]
            longest = max(getattr(info, "param_decls", None) or (), key=len, default="")
            info.parser = partial(given_path, what=longest or info.metavar or one.name)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return run


def _inside(kind: Any) -> Iterator[Any]:
    """The types that a type is made of: those of a list, of what may be None."""
    for one in get_args(kind):
        yield one
        yield from _inside(one)
