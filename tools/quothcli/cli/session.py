"""What was chosen for one run of a command: which broker, how long to wait for it, how to print.

Each of these may be said before the command or behind it; behind it wins. Where the broker is says the
first of these that is there: --url, --ctx, QUOTH_URL, QUOTH_CONTEXT, the context in use, the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import typer

import quoth
from quoth.core.defaults import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quothcli.cli import contexts
from quothcli.cli.exit_status import say
from quothcli.printing.formats import Format
from quothwire.errors import Disconnected, NotFound, QuothError, error
from quothwire.protocol.value import Value
from quothwire.text.suggestion import nearest

URL_VARIABLE = "QUOTH_URL"
CONTEXT_VARIABLE = "QUOTH_CONTEXT"
FIRST_S = 1.0
"""After so long it is said that a broker is waited for."""
_NAMES_MAX = 10_000
"""Among so many names the one that is meant is looked for: that takes a tenth of a second."""
DEFAULT = "the default"
"""Who says where the broker is if nobody does."""


class Place(NamedTuple):
    """Where a broker is, how long to wait for it if nobody says, and who said so."""

    url: str
    timeout: float | None
    origin: str


class Chosen(Value):
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

    @contextmanager
    def connect(self, *, wait: bool = False) -> Iterator[quoth.Client]:
        """Connect to the broker. Raises `Disconnected`, which tells where the address is from.

        wait: as long as it takes until the broker answers; what is waited for is said.
        An error inside that names a topic which does not exist gets the name that may be meant.
        """
        with self._awaited() if wait else self._opened() as client:
            try:
                yield client
            except NotFound as problem:
                if problem.code != "unknown_topic" or (near := _near(client, problem.text)) is None:
                    raise
                hint = f"did you mean {near!r}? `quoth topic ls` lists them"
                raise NotFound(problem.code, problem.text, hint) from problem

    def _awaited(self) -> quoth.Client:
        """A client of the broker, however late that comes."""
        asked = replace(self, timeout=min(self.patience, FIRST_S))
        while True:
            try:
                client = asked._opened()
            except Disconnected as problem:
                if asked is not self:
                    say(f"quoth: {problem.text}; waiting for it, Ctrl-C ends that")
                    asked = self
            else:
                client.timeout = self.patience
                if asked is self:
                    say(f"quoth: the broker at {client.url} answers")
                return client

    def _opened(self) -> quoth.Client:
        """A client that the caller closes. Raises as `connect` does."""
        place = self.place
        try:
            return quoth.connect(place.url, timeout=self.patience)
        except Disconnected as problem:
            raise type(problem)(
                problem.code, f"{problem.text} (from {place.origin})", problem.hint
            ) from problem


def _near(client: quoth.Client, text: str) -> str | None:
    """The topic with the name that is most like the one in an error's text."""
    named = re.search(r"topic (['\"])(.+)\1", text)
    if named is None:
        return None
    with suppress(QuothError):
        return nearest(named[2], client.topics()[:_NAMES_MAX])
    return None


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
