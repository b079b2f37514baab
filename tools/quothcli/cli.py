"""Commands made of annotated functions, for click to parse.

A parameter is annotated with what it is and how it is typed:

    limit: Annotated[int | None, Option("--limit", metavar="N", min=0, help="At most N records.")] = None

A bool is a flag, a list an option that may be repeated or an argument of several words, an enum or a Literal
a choice, and a parameter that is a `Context` gets the one of click. Nothing but click is imported for that:
a library that builds a validator for every parameter takes longer than most commands.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import click
from click import Abort, BadParameter, Context, UsageError, confirm
from click.exceptions import Exit

from quothcli.aliases import MEANT

__all__ = [
    "Abort",
    "Argument",
    "BadParameter",
    "Command",
    "Context",
    "Exit",
    "Group",
    "Meant",
    "Option",
    "Row",
    "UsageError",
    "confirm",
    "make",
    "make_group",
]

Complete = Callable[[Context, str], Sequence[str]]
"""Tells what could be typed, for what has been typed of it."""


class Option:
    """How an option is typed. parser: makes the value of a word. complete: its candidates. callback: called
    with its value at once."""

    def __init__(
        self,
        *names: str,
        help: str,
        metavar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        parser: Callable[[Any], Any] | None = None,
        complete: Complete | None = None,
        callback: Callable[[Any], None] | None = None,
        hidden: bool = False,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.bounds = (min, max)
        self.parser = parser
        self.complete = complete
        self.callback = callback
        self.hidden = hidden


class Argument:
    """How an argument is shown. parser: makes the value of a word. complete: its candidates."""

    def __init__(
        self,
        *,
        help: str,
        metavar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        parser: Callable[[Any], Any] | None = None,
        complete: Complete | None = None,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.bounds = (min, max)
        self.parser = parser
        self.complete = complete


class _Choice(click.ParamType):  # type: ignore[type-arg]  # before 8.3 it has none
    """One of some words, handed over as what it stands for."""

    name = "choice"

    def __init__(self, words: dict[str, Any]) -> None:
        self.words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: Context | None) -> Any:
        """What a word stands for. Raises `BadParameter`."""
        if isinstance(value, Enum):  # a default
            return value
        if value not in self.words:
            near = get_close_matches(value, self.words, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            self.fail(f"{value!r} is none of {', '.join(self.words)}{meant}", param, ctx)
        return self.words[value]

    def shell_complete(self, ctx: Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        """The words that begin like this."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


class _Parsed(click.ParamType):  # type: ignore[type-arg]
    """What a parser makes of a word."""

    name = "value"

    def __init__(self, parser: Callable[[Any], Any]) -> None:
        self._parser = parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: Context | None) -> Any:  # noqa: ARG002
        """The value. Raises what the parser raises."""
        return self._parser(value)


class _Whole(click.IntRange):
    """A whole number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: Context | None) -> int:
        """The number. Raises `BadParameter`, with what is allowed."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number", param, ctx)
        return int(_within(self, number, param, ctx))


class _Real(click.FloatRange):
    """A number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: Context | None) -> float:
        """The number. Raises `BadParameter`, with what is allowed."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return _within(self, number, param, ctx)


def _within(
    kind: click.IntRange | click.FloatRange,
    number: float,
    param: click.Parameter | None,
    ctx: Context | None,
) -> float:
    low, high = kind.min, kind.max
    if (low is not None and number < low) or (high is not None and number > high):
        allowed = (
            f"at least {low}" if high is None else f"at most {high}" if low is None else f"{low} to {high}"
        )
        kind.fail(f"{number} is out of range: {allowed}", param, ctx)
    return number


class _Typed(NamedTuple):
    """What an annotation says of a parameter's values."""

    kind: Any
    is_list: bool


def _typed(annotation: Any) -> _Typed:
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    if get_origin(annotation) is list:
        return _Typed(get_args(annotation)[0], True)
    return _Typed(annotation, False)


def _type_of(kind: Any, low: float | None, high: float | None) -> Any:
    """What reads a parameter's words."""
    if get_origin(kind) is Literal:
        return _Choice({word: word for word in get_args(kind)})
    if get_origin(kind) is tuple:
        return click.Tuple([_type_of(one, low, high) for one in get_args(kind)])
    if issubclass(kind, Enum):
        return _Choice({str(one.value): one for one in kind})
    if issubclass(kind, int):
        return _Whole(low, high)  # type: ignore[arg-type]
    if issubclass(kind, float):
        return _Real(low, high)
    if issubclass(kind, Path):
        return click.Path(path_type=Path)
    assert kind is str, kind
    return click.STRING


def _reader(said: Option | Argument, typed: _Typed) -> Any:
    """What reads a parameter's words: its own parser, or that of its type."""
    return _Parsed(said.parser) if said.parser is not None else _type_of(typed.kind, *said.bounds)


class _Shown:
    """A parameter of ours. label: its value's name in a table."""

    label: str


class _Option(_Shown, click.Option):
    """An option of click that has a label."""


class _Argument(_Shown, click.Argument):
    """An argument of click that has a label and a help text."""

    help: str


def _option(name: str, said: Option, typed: _Typed, default: Any) -> click.Option:
    callback, required = said.callback, default is inspect.Parameter.empty
    more: dict[str, Any] = {} if required else {"default": default}
    if typed.kind is bool:
        more["is_flag"] = True
        metavar = None
    else:
        kind = _reader(said, typed)
        more["type"] = kind
        metavar = said.metavar or ("|".join(kind.words) if isinstance(kind, _Choice) else None)
    made = _Option(
        [name, *said.names],
        help=said.help,
        metavar=metavar,
        required=required,
        multiple=typed.is_list,
        hidden=said.hidden,
        show_default=default not in (None, False) and "default" not in said.help,
        is_eager=callback is not None,
        callback=(lambda _context, _param, value: callback(value)) if callback is not None else None,
        shell_complete=_completer(said.complete),
        **more,
    )
    made.label = said.metavar or max(said.names, key=len).lstrip("-").upper()
    return made


def _argument(name: str, said: Argument, typed: _Typed, default: Any) -> click.Argument:
    required = default is inspect.Parameter.empty
    label = said.metavar or name.upper()
    several = "..." if typed.is_list else ""
    more: dict[str, Any] = {} if required else {"default": default}
    made = _Argument(
        [name],
        type=_reader(said, typed),
        metavar=f"{label}{several}" if required else f"[{label}{several}]",
        required=required,
        nargs=-1 if typed.is_list else 1,
        shell_complete=_completer(said.complete),
        **more,
    )
    made.label, made.help = label, said.help
    return made


def _completer(complete: Complete | None) -> Callable[..., Any] | None:
    if complete is None:
        return None
    return lambda context, _param, incomplete: list(complete(context, incomplete))


class Meant(UsageError):
    """Another command is meant by what was typed: the last words of it, so many, mean these words."""

    def __init__(self, text: str, ctx: Context, number: int, words: Sequence[str]) -> None:
        super().__init__(text, ctx)
        self.number = number
        self.words = words


class Row(NamedTuple):
    """A command that is loaded when it is typed: the module whose `add` brings it, and what it is for."""

    module: str
    sentence: str


class _Helped(click.Command):
    """A command whose help tells of its arguments, too."""

    def format_options(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        """Write what may be typed behind the command."""
        if not hasattr(click.Command, "format_arguments"):  # before 8.5 click knows no help of arguments
            self.format_arguments(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_arguments(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        """Write what the arguments are."""
        arguments = [one for one in self.get_params(ctx) if isinstance(one, _Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(one.label, one.help) for one in arguments])


class Command(_Helped):
    """A command."""


class Group(_Helped, click.Group):
    """Commands under one name. rows: those that are loaded when they are typed; none for what is added."""

    def __init__(
        self, name: str | None = None, *, rows: Mapping[str, Row] | None = None, **common: Any
    ) -> None:
        super().__init__(name, subcommand_metavar="COMMAND [ARGS]...", **common)
        self.rows = dict(rows or {})

    def load(self) -> None:
        """Load all commands, and those below them."""
        for name in self.list_commands(None):
            below = self.get_command(None, name)
            if isinstance(below, Group):
                below.load()
        self.commands = {name: self.commands[name] for name in self.list_commands(None)}

    def list_commands(self, ctx: Context | None) -> list[str]:  # noqa: ARG002
        """The names, in the order in which they are told."""
        return list(self.rows or self.commands)

    def get_command(self, ctx: Context | None, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, loaded by now; None if there is none."""
        if cmd_name in self.rows and cmd_name not in self.commands:
            import_module(self.rows[cmd_name].module).add(self)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        """Write what there is, without loading it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._sentence(name)) for name in self.list_commands(ctx)])

    def _sentence(self, name: str) -> str:
        if name in self.rows:
            return self.rows[name].sentence
        return (self.commands[name].help or "").partition("\n")[0].partition(". ")[0].removesuffix(".") + "."

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was typed. Raises `UsageError` with the one that was meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            path = (*ctx.command_path.split()[1:], name)
            text = f"there is no command `quoth {' '.join(path)}`"
            if path in MEANT:
                raise Meant(text, ctx, len(args) + len(path) - 1, [*MEANT[path].split(), *args[1:]])
            near = get_close_matches(name, self.list_commands(ctx), n=2)
            raise UsageError(text + (f"; did you mean {' or '.join(near)}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)


def make(function: Callable[..., Any], name: str, *, epilog: str = "") -> Command:
    """The command of an annotated function, with its docstring for help."""
    return Command(name, **_common(function, function.__doc__, epilog))


def make_group(
    function: Callable[..., Any], help_text: str, *, epilog: str = "", rows: Mapping[str, Row] | None = None
) -> Group:
    """A group, and the function that is called before its commands, and without one."""
    return Group(rows=rows, invoke_without_command=True, **_common(function, help_text, epilog))


def _common(function: Callable[..., Any], help_text: str | None, epilog: str) -> dict[str, Any]:
    """What click has to know of a command."""
    parameters: list[click.Parameter] = []
    lists: list[str] = []
    contexts: list[str] = []
    for one in inspect.signature(function, eval_str=True).parameters.values():
        if one.annotation is Context:
            contexts.append(one.name)
            continue
        annotation, said = get_args(one.annotation)[:2]
        typed = _typed(annotation)
        if typed.is_list:
            lists.append(one.name)
        made = _option if isinstance(said, Option) else _argument
        parameters.append(made(one.name, said, typed, one.default))

    def call(**values: Any) -> Any:
        for name in lists:
            values[name] = list(values[name] or ()) or None
        for name in contexts:
            values[name] = click.get_current_context()
        return function(**values)

    return {
        "callback": call,
        "params": parameters,
        "help": inspect.cleandoc(help_text or ""),
        "epilog": epilog,
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }
