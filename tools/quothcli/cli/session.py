"""The session of one command: its broker, how long to wait for that, how to print.

Each of these may be typed before the command or behind it; behind it wins. The address of the broker is the
first one of: --url, --ctx, QUOTH_URL, QUOTH_CONTEXT, the context in use, the default.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit

from typer import Context

import quoth
from quoth.core.options import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quothcli.cli import contexts
from quothcli.cli.exit_status import say
from quothcli.printing.output import Format, Printer
from quothwire.errors import Disconnected, NotFound, QuothError, error
from quothwire.protocol.value import Value
from quothwire.text.suggestion import nearest

URL_VARIABLE = "QUOTH_URL"
CONTEXT_VARIABLE = "QUOTH_CONTEXT"
FIRST_S = 1.0
"""Time after which a command says that it waits for the broker."""
_NAMES_MAX = 10_000
"""Names among which a similar one is searched, which takes a tenth of a second."""
DEFAULT = "the default"
"""The source of an address that was given nowhere."""


class BrokerAddress(NamedTuple):
    """An address, the timeout of its context, and where both come from."""

    url: str
    timeout: float | None
    source: str


class Session(Value):
    """The broker, the timeout and the format of one command, as far as they were typed."""

    url: str | None = None
    timeout: float | None = None
    form: Format | None = None
    ctx: str | None = None

    @property
    def format(self) -> Format:
        """The format in which to print."""
        return Format.JSON if self.form is Format.JSONL else self.form or Format.TEXT

    @property
    def printer(self) -> Printer:
        """A printer in that format."""
        return Printer(self.format)

    @property
    def broker(self) -> BrokerAddress:
        """The address of the broker. Raises `Refused` ``unknown_context`` or ``bad_contexts``."""
        if self.url:
            return BrokerAddress(self.url, None, "--url")
        if not self.ctx and (url := os.environ.get(URL_VARIABLE)):
            return BrokerAddress(url, None, URL_VARIABLE)
        held = contexts.load()
        name = self.ctx or os.environ.get(CONTEXT_VARIABLE) or held.in_use
        if not name:
            return BrokerAddress(DEFAULT_URL, None, DEFAULT)
        context = held.find(name)
        return BrokerAddress(context.url, context.timeout, f"context {name}")

    @property
    def timeout_s(self) -> float:
        """Seconds to wait for the broker. Raises as `broker` does."""
        return self.timeout or self.broker.timeout or DEFAULT_TIMEOUT_S

    @contextmanager
    def connect(self, *, wait: bool = False) -> Iterator[quoth.Client]:
        """Connect to the broker. Raises `Disconnected`, with the source of the address.

        wait: until the broker answers, however long that takes; stderr says so.
        A `NotFound` inside gets the name of a similar topic or group as its hint.
        """
        with self._awaited() if wait else self._opened() as client:
            try:
                yield client
            except NotFound as problem:
                near, lists = _near(client, problem)
                if near is None:
                    raise
                hint = f"did you mean {near!r}? `{lists}` lists them"
                raise NotFound(problem.code, problem.text, hint) from problem

    def _awaited(self) -> quoth.Client:
        """Return a client of the broker as soon as that answers."""
        asked = replace(self, timeout=min(self.timeout_s, FIRST_S))
        while True:
            try:
                client = asked._opened()
            except Disconnected as problem:
                if asked is not self:
                    say(f"quoth: {problem.text}; waiting for it, Ctrl-C ends that")
                    asked = self
            else:
                client.timeout = self.timeout_s
                if asked is self:
                    say(f"quoth: the broker at {client.url} answers")
                return client

    def _opened(self) -> quoth.Client:
        """Return a client that the caller closes. Raises as `connect` does."""
        broker = self.broker
        try:
            return quoth.connect(broker.url, timeout=self.timeout_s)
        except Disconnected as problem:
            text = f"{problem.text} (from {broker.source})"
            raise type(problem)(problem.code, text, problem.hint) from problem


def is_here(url: str) -> bool:
    """True if the address can only mean this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "ipc" or host in ("localhost", "::1") or host.startswith("127.")


def session_of(
    context: Context,
    url: str | None = None,
    timeout: float | None = None,
    form: Format | None = None,
    ctx: str | None = None,
) -> Session:
    """Make the session of a command from the options behind it and before it."""
    before = context.find_object(Session) or Session()
    if "" in (url, before.url):
        raise error(
            "bad_setting", "--url is empty", "is a variable not set? without --url the default is used"
        )
    return Session(url or before.url, timeout or before.timeout, form or before.form, ctx or before.ctx)


def _near(client: quoth.Client, problem: NotFound) -> tuple[str | None, str]:
    """Return the topic or group whose name is most like that in an error, and what lists such names."""
    names = [text for _, text in re.findall(r"(['\"])(.+?)\1", problem.text)]
    with suppress(QuothError):
        match problem.code, names:
            case "unknown_topic", [topic, *_]:
                return nearest(topic, client.topics()[:_NAMES_MAX]), "quoth topic ls"
            case "unknown_group", [topic, group]:
                groups = [one.group for one in client.groups(topic)]
                return nearest(group, groups), f"quoth group ls {shlex.quote(topic)}"
    return None, ""
