"""What the commands share: where the broker is, how long to wait for it, how to print.

Each of these options may stand before the command or behind it; behind it wins.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

import quoth
from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quoth.moment import as_pointer

URL_VARIABLE = "QUOTH_URL"


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


Url = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help=f"Where the broker is (env {URL_VARIABLE}; default {DEFAULT_URL})."
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
        help="text for people, json with one object per line, raw with bare values (default text).",
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]
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


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen for one run of a command. timeout: None if nothing was said."""

    url: str | None = None
    timeout: float | None = None
    form: Format | None = None

    @property
    def format(self) -> Format:
        """How to print."""
        return self.form or Format.TEXT

    @property
    def address(self) -> str:
        """Where the broker is."""
        return self.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL

    def connect(self) -> quoth.Client:
        """Connect to the broker. Raises `Disconnected`."""
        return quoth.connect(self.address, timeout=self.timeout or DEFAULT_TIMEOUT_S)


def chosen(
    context: typer.Context, url: str | None = None, timeout: float | None = None, form: Format | None = None
) -> Chosen:
    """Put together what was said behind the command and before it."""
    before = context.find_object(Chosen) or Chosen()
    return Chosen(url or before.url, timeout or before.timeout, form or before.form)


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
