"""The arguments and options that commands share. What they come to is `chosen`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.core.defaults import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quoth.timestamps import as_pointer
from quothcli.cli.completion import context_names, topic_names
from quothcli.cli.quantities import span
from quothcli.cli.session import CONTEXT_VARIABLE, URL_VARIABLE, Chosen
from quothcli.printing.formats import Format

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
        metavar="SPAN",
        parser=span("--timeout", least=0.001),
        help=f"How long to wait for the broker: 500ms, 1m30s, seconds (default {DEFAULT_TIMEOUT_S:g}s).",
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
        "{headers[NAME]} {headers_problem} {raw_headers}, {time:%H:%M:%S}, {value!raw} for the bytes as they "
        "are; \\t, \\n; {{ for a brace.",
    ),
]
Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=topic_names),
]
Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC",
        help="Names of topics, or patterns in quotes: 'orders.*' also takes those that are made later.",
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
        "written, so a record may come twice after a crash, none is left out. --after and --since, and the "
        "-n of tail, say where a new FILE begins.",
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
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Stop before this time or pointer, given as for --since."),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", "--first", metavar="N", min=0, help="End after N records (default: no limit)."),
]


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


def last_before(until: str | None) -> int | None:
    """The last pointer before a moment, None if none was typed. Raises ``bad_pointer``."""
    end = moment(until)
    return None if end is None else max(0, end - 1)


def start(after: str | None, since: str | None) -> int | None:
    """Where to begin reading, as a cursor. Raises typer.BadParameter if both were given."""
    if after is not None and since is not None:
        raise typer.BadParameter("it says the same as --since: give one of them", param_hint="--after")
    if since is not None:
        return max(0, (moment(since) or 0) - 1)
    return moment(after)
