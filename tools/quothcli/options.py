"""What the commands share: where the broker is, how long to wait for it, how to print.

Each of these options may stand before the command or behind it; behind it wins. Where the broker is says the
first of these that is there: --url, --ctx, QUOTH_URL, QUOTH_CONTEXT, the context in use, the default.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import quoth
from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quoth.moment import as_pointer
from quothcli import contexts
from quothcli.completion import context_names, topic_names
from quothwire.errors import Disconnected

URL_VARIABLE = "QUOTH_URL"
CONTEXT_VARIABLE = "QUOTH_CONTEXT"
DEFAULT = "the default"
"""Who says where the broker is if nobody does."""


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"  # the same as json, for whoever calls it so
    RAW = "raw"


Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help=f"Where the broker is (env {URL_VARIABLE}; default {DEFAULT_URL})."
    ),
]
Ctx = Annotated[
    str | None,
    typer.Option(
        "--ctx",
        metavar="NAME",
        help=f"The context that names the broker (env {CONTEXT_VARIABLE}; default: the one in use).",
        autocompletion=context_names,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.001,
        help=f"How long to wait for the broker (default {DEFAULT_TIMEOUT_S:g}).",
    ),
]
Form = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="text for people, json or jsonl with one object per line, raw with bare values (default text).",
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="TEXT",
        help="Print each record so, instead of a --format: fields {topic} {pointer} {time} {key} {value} "
        "{headers[NAME]}, {time:%H:%M:%S}, {value!raw} for the bytes as they are; \\t, \\n; {{ for a brace.",
    ),
]
Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False, autocompletion=topic_names),
]
Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC",
        help="Names of topics, or patterns in quotes: 'orders.*' also takes those that are made later.",
        show_default=False,
        autocompletion=topic_names,
    ),
]
Merge = Annotated[
    bool,
    typer.Option(
        "--merge",
        help="Print the records of several topics in the order of time, not as they come.",
    ),
]
CursorFile = Annotated[
    Path | None,
    typer.Option(
        "--cursor",
        metavar="FILE",
        help="Go on where FILE says, and keep in it how far this came. It is saved after the output was "
        "written, so a record may come twice after a crash, none is left out. --after and --since say where "
        "a new FILE begins.",
    ),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="POINTER", help="Begin behind this pointer (0: before the oldest record)."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Begin at this time: 2026-01-02T03:04:05Z, -15m, -1d3h, or a pointer."
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=0, help="Print at most N records (default: all).")
]


class Place(NamedTuple):
    """Where a broker is, how long to wait for it if nobody says, and who said so."""

    url: str
    timeout: float | None
    origin: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen for one run of a command. timeout: None if nothing was said."""

    url: str | None = None
    timeout: float | None = None
    form: Format | None = None
    ctx: str | None = None

    @property
    def format(self) -> Format:
        """How to print."""
        return Format.JSON if self.form is Format.JSONL else self.form or Format.TEXT

    @property
    def address(self) -> str:
        """Where the broker is. Raises `Refused` ``unknown_context`` or ``bad_contexts``."""
        return self.place.url

    @property
    def place(self) -> Place:
        """Where the broker is, and who said so. Raises as `address` does."""
        if self.url:
            return Place(self.url, None, "--url")
        if not self.ctx and (url := os.environ.get(URL_VARIABLE)):
            return Place(url, None, URL_VARIABLE)
        held = contexts.load()
        name = self.ctx or os.environ.get(CONTEXT_VARIABLE) or held.in_use
        if not name:
            return Place(DEFAULT_URL, None, DEFAULT)
        context = held.find(name)
        return Place(context.url, context.timeout, f"context {name}")

    def connect(self) -> quoth.Client:
        """Connect to the broker. Raises `Disconnected`, which tells where the address is from."""
        place = self.place
        try:
            return quoth.connect(place.url, timeout=self.timeout or place.timeout or DEFAULT_TIMEOUT_S)
        except Disconnected as problem:
            raise type(problem)(
                problem.code, f"{problem.text} (from {place.origin})", problem.hint
            ) from problem


def chosen(
    context: typer.Context, url: str | None = None, timeout: float | None = None, form: Format | None = None
) -> Chosen:
    """Put together what was said behind the command and before it."""
    before = context.find_object(Chosen) or Chosen()
    return replace(before, url=url or before.url, timeout=timeout or before.timeout, form=form or before.form)


def with_ctx(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command that takes --url take --ctx beside it: it finds that in what is `chosen`."""
    signature = inspect.signature(function, eval_str=True)
    if (known := signature.parameters.get("url")) is None or known.annotation != Url:
        return function

    @wraps(function)
    def run(*, ctx: str | None, **typed: Any) -> Any:
        context = typed["context"]
        before = context.find_object(Chosen) or Chosen()
        context.obj = replace(before, ctx=ctx or before.ctx)
        return function(**typed)

    parameters = []
    for one in signature.parameters.values():
        parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        if one.name == "url":
            parameters.append(parameters[-1].replace(name="ctx", annotation=Ctx, default=None))
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def moment(text: str | None) -> int | None:
    """A pointer or a time as a person types it, as a pointer. Raises ``bad_pointer``."""
    return None if text is None else as_pointer(text)


def start(after: str | None, since: str | None) -> int | None:
    """Where to begin reading, as a cursor. Raises typer.BadParameter if both were given."""
    if after is not None and since is not None:
        raise typer.BadParameter("it says the same as --since: give one of them", param_hint="--after")
    if since is not None:
        return max(0, (moment(since) or 0) - 1)
    return moment(after)
