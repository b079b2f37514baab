"""The session of one command: its broker, how long to wait for that, how to print.

Each of these may be typed before the command or behind it; behind it wins. The address of the broker is the
first one of: --url, --ctx, QUOTH_URL, QUOTH_CONTEXT, the context in use, the default.

The key is the first one of: --key-file, that of --ctx, QUOTH_KEY_FILE, that of the context of the address. So
the key of a context goes to no other address than the context's own. QUOTH_KEY is something else, the key of
a record for the command of `quoth consume --exec`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from typer import Context

import quoth
from quoth.core.options import DEFAULT_TIMEOUT_S, DEFAULT_URL
from quothcli.cli import contexts
from quothcli.cli.exit_status import say
from quothcli.printing.output import Format, Printer
from quothwire.errors import AuthError, Disconnected, NotFound, QuothError, RequestError, error
from quothwire.protocol.value import Value
from quothwire.text.suggestion import nearest

URL_VARIABLE = "QUOTH_URL"
CONTEXT_VARIABLE = "QUOTH_CONTEXT"
KEY_VARIABLE = "QUOTH_KEY_FILE"
KEY_OPTION = "--key-file"
FIRST_S = 1.0
"""Time after which a command says that it waits for the broker."""
_NAMES_MAX = 10_000
"""Names among which a similar one is searched, which takes a tenth of a second."""
DEFAULT = "the default"
"""The source of an address that was given nowhere."""


class ChosenKey(NamedTuple):
    """A key file, and where its path comes from."""

    path: Path
    source: str

    def checked(self) -> Path:
        """Return the path, of which a client reads the file again when a key is replaced.

        Raises ``bad_setting``, with the source of the path, if it is no key file of a client.
        """
        from quoth.connection.endpoint import Endpoint

        try:
            Endpoint("", self.path)
        except RequestError as problem:
            raise _with_source(problem, f"from {self.source}") from problem
        return self.path


class BrokerAddress(NamedTuple):
    """An address, the timeout of its context, where both come from, and the key for this broker."""

    url: str
    timeout: float | None
    source: str
    key: ChosenKey | None = None

    @property
    def key_text(self) -> str:
        """The key and its source, for an error."""
        return "no key was given" if self.key is None else f"key {self.key.path}, from {self.key.source}"

    def client(self, timeout: float) -> quoth.Client:
        """Return a client that the caller closes, which connects at its first request.

        Raises `RequestError` ``bad_setting`` for a key file that cannot be used.
        """
        return quoth.Client(self.url, None, timeout, key=None if self.key is None else self.key.checked())


class Session(Value):
    """The broker, the timeout, the format and the key of one command, as far as they were typed."""

    url: str | None = None
    timeout: float | None = None
    form: Format | None = None
    ctx: str | None = None
    key_file: Path | None = None

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
        """The address of the broker and the key. Raises `Refused` ``unknown_context`` or ``bad_contexts``."""
        found = self._address()
        if self.key_file is not None:
            return found._replace(key=ChosenKey(self.key_file, KEY_OPTION))
        if (path := os.environ.get(KEY_VARIABLE)) and not (self.ctx and found.key):
            return found._replace(key=ChosenKey(Path(path), KEY_VARIABLE))
        return found

    def _address(self) -> BrokerAddress:
        """Return the address, and the key of its context if a context names it. Raises as `broker` does."""
        if self.url:
            return BrokerAddress(self.url, None, "--url")
        if not self.ctx and (url := os.environ.get(URL_VARIABLE)):
            return BrokerAddress(url, None, URL_VARIABLE)
        held = contexts.load()
        name = self.ctx or os.environ.get(CONTEXT_VARIABLE) or held.in_use
        if not name:
            return BrokerAddress(DEFAULT_URL, None, DEFAULT)
        context, source = held.find(name), f"context {name}"
        key = None if context.key is None else ChosenKey(Path(context.key), source)
        return BrokerAddress(context.url, context.timeout, source, key)

    @property
    def timeout_s(self) -> float:
        """Seconds to wait for the broker. Raises as `broker` does."""
        return self.timeout or self.broker.timeout or DEFAULT_TIMEOUT_S

    @contextmanager
    def naming_key(self) -> Iterator[None]:
        """Name the key and its source in an `AuthError` that is raised inside, if there is a key."""
        try:
            yield
        except AuthError as problem:
            broker = self.broker
            if broker.key is None:
                raise
            raise _with_source(problem, broker.key_text) from problem

    @contextmanager
    def connect(self, *, wait: bool = False) -> Iterator[quoth.Client]:
        """Connect to the broker.

        Raises `Disconnected` with the source of the address, `AuthError` with the source of the key, and
        `RequestError` ``bad_setting`` for a key file that cannot be used.

        wait: until the broker answers, however long that takes; stderr says so.
        A `NotFound` inside gets the name of a similar topic or group as its hint, an `AuthError` its key.
        """
        with self.naming_key(), self._awaited() if wait else self._opened() as client:
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
        key = None if broker.key is None else broker.key.checked()
        try:
            return quoth.connect(broker.url, key=key, timeout=self.timeout_s)
        except Disconnected as problem:
            raise _with_source(problem, f"from {broker.source}") from problem


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
    key_file: Path | None = None,
) -> Session:
    """Make the session of a command from the options behind it and before it."""
    before = context.find_object(Session) or Session()
    if "" in (url, before.url):
        raise error(
            "bad_setting", "--url is empty", "is a variable not set? without --url the default is used"
        )
    return Session(
        url or before.url,
        timeout or before.timeout,
        form or before.form,
        ctx or before.ctx,
        key_file or before.key_file,
    )


def _with_source(problem: QuothError, source: str) -> QuothError:
    """Return the error with the source of what it is about."""
    return type(problem)(problem.code, f"{problem.text} ({source})", problem.hint)


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
