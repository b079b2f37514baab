"""Makes commands of functions: the help is the docstring, examples stand below the options."""

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

from quothcli.cli.exit_status import CommandStatus
from quothcli.cli.usage import MEANT, Meant, UsageError
from quothwire.text.paths import given_path
from quothwire.text.suggestion import nearest

Run = Callable[..., int | None]
"""The function of a command; it returns an exit status, or None for 0."""
Function = TypeVar("Function", bound=Run)


def option(typed: str, help_text: str, **more: Any) -> Any:
    """Make an option of what is typed, `-n --number N` or `--once`, and of its help."""
    *names, last = typed.split()
    if last.startswith("-"):
        return typer.Option(*names, last, help=help_text, **more)
    return typer.Option(*names, metavar=last, help=help_text, **more)


def argument(metavar: str, help_text: str, **more: Any) -> Any:
    """Make an argument of its name and its help."""
    return typer.Argument(metavar=metavar, help=help_text, **more)


class LazyCommand(NamedTuple):
    """A command that is loaded when it is typed: its module, and the first sentence of its help.

    The module has an `app`: a group of this name, or single commands, this one among them.
    """

    module: str
    sentence: str


class SharedOptions(NamedTuple):
    """Options in the place of one parameter of a command: `Annotated[Session, SharedOptions(...)]`.

    options: the annotation of each option by its name. make: called with the context and all options by name,
    None for what was not typed; returns the value of the parameter.
    """

    options: Mapping[str, Any]
    make: Callable[..., Any]


def as_typed(_context: typer.Context, **typed: Any) -> dict[str, Any]:
    """Return the options of a `SharedOptions` as a map."""
    return typed


class Group(TyperGroup):
    """Commands under one name. rows: those that are loaded when they are typed, in the order of the help."""

    rows: Mapping[str, LazyCommand] = {}

    def load(self) -> None:
        """Load all commands, and those below them."""
        for name in self.list_commands(None):
            below = self.get_command(None, name)
            if isinstance(below, Group):
                below.load()
        self.commands = {name: self.commands[name] for name in self.list_commands(None)}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names, in the order in which the help lists them."""
        return list(self.rows or self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Load the command of a name; None if there is none."""
        if cmd_name in self.rows and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(self.rows[cmd_name].module, cmd_name)
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
                raise Meant(text, ctx, path, args[1:])
            near = nearest(name, self.list_commands(ctx))
            raise UsageError(text + (f"; did you mean {near}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)


def app(
    before: Run, help_text: str, *, epilog: str = "", rows: Mapping[str, LazyCommand] | None = None
) -> typer.Typer:
    """Make a group of commands. before: called before each of them, and where none is typed."""
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


def group(help_text: str = "", rows: Mapping[str, LazyCommand] | None = None) -> typer.Typer:
    """Make a group of commands below the main one. Alone it prints its help, which is no success.

    help_text: empty for the single commands of a module. rows: commands that are loaded when they are typed.
    """
    return app(show_help, help_text, rows=rows)


def built(made: typer.Typer) -> Group:
    """Make the command of a group."""
    group: Any = typer.main.get_command(made)
    assert isinstance(group, Group)
    return group


def _load(module: str, name: str) -> Any:
    """Import the module of a command and make the command."""
    found = built(import_module(module).app)
    return found if found.help else found.commands[name]


def show_help(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(CommandStatus.USAGE)


def examples_text(examples: Sequence[str]) -> str:
    """Lay out examples as they stand below a help text, their lines kept."""
    return "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])


def command(group: typer.Typer, name: str, *examples: str) -> Callable[[Function], Function]:
    """Put a function into a group as a command."""

    def put(function: Function) -> Function:
        group.command(name, epilog=examples_text(examples))(_with_plain_options(function))
        return function

    return put


def _with_plain_options(function: Run) -> Run:
    """Wrap a function so that each of its parameters is one option or argument, as Typer takes them.

    An argument or option that is a path raises ``bad_setting`` if it is empty.
    """
    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    all_shared: dict[str, SharedOptions] = {}
    for one in inspect.signature(function, eval_str=True).parameters.values():
        metadata = get_args(one.annotation)[1:] if get_origin(one.annotation) is Annotated else ()
        if metadata and isinstance(metadata[0], SharedOptions):
            all_shared[one.name] = metadata[0]
            continue
        if metadata and Path in _types_in(get_args(one.annotation)[0]):
            longest = max(getattr(metadata[0], "param_decls", None) or (), key=len, default="")
            metadata[0].parser = partial(given_path, what=longest or metadata[0].metavar or one.name)
        parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    for shared in reversed(all_shared.values()):  # so those of the session, the first parameter, stand last
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in shared.options.items()
        ]

    @wraps(function)
    def run(context: typer.Context, **typed: Any) -> int | None:
        for name, shared in all_shared.items():
            options = {option: typed.pop(option) for option in shared.options}
            typed[name] = shared.make(context, **options)
        return function(**typed)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _types_in(kind: Any) -> Iterator[Any]:
    """Yield a type and those that it is made of, like the items of a list."""
    yield kind
    for one in get_args(kind):
        yield from _types_in(one)
