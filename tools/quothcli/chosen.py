"""What was chosen for one run of a command: which broker, how long to wait for it, how to print.

Each of these may be said before the command or behind it; behind it wins. Where the broker is says the
first of these that is there: --url, --ctx, QUOTH_URL, QUOTH_CONTEXT, the context in use, the default.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import NamedTuple

import typer

import quoth
from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quothcli import contexts
from quothcli.formats import Format
from quothwire.errors import Disconnected, error

URL_VARIABLE = "QUOTH_URL"
CONTEXT_VARIABLE = "QUOTH_CONTEXT"
DEFAULT = "the default"
"""Who says where the broker is if nobody does."""


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

    @property
    def patience(self) -> float:
        """Seconds to wait for the broker. Raises as `address` does."""
        return self.timeout or self.place.timeout or DEFAULT_TIMEOUT_S

    def connect(self) -> quoth.Client:
        """Connect to the broker. Raises `Disconnected`, which tells where the address is from."""
        place = self.place
        try:
            return quoth.connect(place.url, timeout=self.patience)
        except Disconnected as problem:
            raise type(problem)(
                problem.code, f"{problem.text} (from {place.origin})", problem.hint
            ) from problem


def chosen(
    context: typer.Context, url: str | None = None, timeout: float | None = None, form: Format | None = None
) -> Chosen:
    """Put together what was said behind the command and before it."""
    before = context.find_object(Chosen) or Chosen()
    if "" in (url, before.url):
        raise error(
            "bad_setting", "--url is empty", "is a variable not set? without --url the default is used"
        )
    return replace(before, url=url or before.url, timeout=timeout or before.timeout, form=form or before.form)
