"""Making a command: a function, with its help from its docstring and examples below the options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import typer
import typer.main
from typer.core import TyperGroup

from quothcli.cli.aliases import MEANT
from quothcli.cli.exit_status import Status
from quothcli.cli.options import with_ctx
from quothwire.errors import QuothError
from quothwire.text.paths import given_path
from quothwire.text.suggestion import nearest

Run = Callable[..., int | None]
"""What a command does; it returns an exit status, or None for 0."""
Function = TypeVar("Function", bound=Run)
UsageError: Any = typer.BadParameter.__base__
"""What is raised for everything that was typed wrongly; where it comes from depends on typer's version."""


class Meant(UsageError):  # type: ignore[misc]
    """Another command is meant by what was typed: the last words of it, so many, mean these words."""

    def __init__(self, text: str, context: Any, number: int, words: Sequence[str]) -> None:
        super().__init__(text, context)
        self.number = number
        self.words = words


class Row(NamedTuple):
    """A command that is loaded when it is typed: the module whose `add` brings it, and what it is for."""

    module: str
    sentence: str


class Group(TyperGroup):
    """Commands under one name. rows: those that are loaded when they are typed, in the order of the help."""

    rows: Mapping[str, Row] = {}

    def load(self) -> None:
        """Load all commands, and those below them."""
        for name in self.list_commands(None):
            below = self.get_command(None, name)
            if isinstance(below, Group):
                below.load()
        self.commands = {name: self.commands[name] for name in self.list_commands(None)}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names, in the order in which the help lists them."""
        return list(self.rows or self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of a name, loaded by now; None if there is none."""
        if cmd_name in self.rows and cmd_name not in self.commands:
            self.commands.update(_brought_by(self.rows[cmd_name].module))
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the purpose of each command, without loading it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._sentence(name)) for name in self.list_commands(ctx)])

    def _sentence(self, name: str) -> str:
        if name in self.rows:
            return self.rows[name].sentence
        return (self.commands[name].help or "").partition("\n")[0].partition(". ")[0].removesuffix(".") + "."

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed. Raises `UsageError` with the one that was meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            path = (*ctx.command_path.split()[1:], name)
            text = f"there is no command `quoth {' '.join(path)}`"
            if path in MEANT:
                raise Meant(text, ctx, len(args) + len(path) - 1, _meant(ctx, path, args[1:]))
            near = nearest(name, self.list_commands(ctx))
            raise UsageError(text + (f"; did you mean {near}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)


def _meant(context: Any, path: tuple[str, ...], following: Sequence[str]) -> list[str]:
    """The words to type for an alias and the words that follow it. They parse, if need be without those."""
    meanings = [meaning.split() for meaning in MEANT[path]]
    if meanings[0][0].startswith("-"):
        return meanings[0]
    for words in ([*meaning, *following] for meaning in meanings):
        if line := _parsed(context.find_root(), words):
            return line
    return _parsed(context.find_root(), meanings[0]) or [*meanings[0], "--help"]


def _parsed(context: Any, words: Sequence[str]) -> list[str]:
    """The words that stand for a line of words without calling its command; empty if it does not parse."""
    if any(word in context.help_option_names for word in words):
        return []  # parsing would print the help
    left = list(words)
    try:
        while isinstance(context.command, Group):
            name, found, left = context.command.resolve_command(context, left)
            context = found.make_context(name, left, parent=context)
    except Meant as problem:
        return list(problem.words)
    except (UsageError, QuothError, IndexError):
        return []
    return list(words)


def app(
    before: Run, help_text: str, *, epilog: str = "", rows: Mapping[str, Row] | None = None
) -> typer.Typer:
    """Make a group of commands. before: what is called before each of them, and where none is typed."""
    made = typer.Typer(
        cls=type("Group", (Group,), {"rows": dict(rows or {})}),
        help=help_text,
        epilog=epilog,
        rich_markup_mode=None,  # plain help: the same in a pipe, and on the screen at once
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(invoke_without_command=True)(before)
    return made


def group(help_text: str, rows: Mapping[str, Row] | None = None) -> typer.Typer:
    """Make a group of commands below the main one. Alone it prints its help, which is no success.

    rows: commands that are loaded when they are typed.
    """
    return app(show_help, help_text, rows=rows)


def built(made: typer.Typer) -> Group:
    """Make what can be run of a group."""
    group: Any = typer.main.get_command(made)
    assert isinstance(group, Group)
    return group


def _brought_by(module: str) -> dict[str, Any]:
    """The commands that a module adds, by their names."""
    made = app(show_help, "")
    import_module(module).add(made)
    return dict(built(made).commands)


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
