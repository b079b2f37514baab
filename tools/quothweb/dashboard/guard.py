"""The layer around the pages: it lets operators in, and gives each page its Content-Security-Policy.

NiceGUI authenticates no request. So each path of it, its WebSocket included, is for those who may see the
whole broker. A socket belongs to the principal that has loaded its page, and ends with the token, with the
session or with the server.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from typing import Any

from nicegui import Client
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quothweb.access.authentication import Principal
from quothweb.dashboard.login import problem_page
from quothweb.dashboard.view import PRINCIPAL, local_path
from quothweb.problems import HttpProblem
from quothweb.services import WebServices
from quothweb.streams import OpenStream, StreamEnded
from quothwire.errors import QuothError

CHECKED_S = 5.0
"""After so long an open page is checked again: its session may have ended, or the right of its key."""
PREFIX_HEADER = b"x-forwarded-prefix"
POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""Vue compiles templates in the browser, which needs unsafe-eval; Quasar sets styles of elements."""

_EVENTS = ("42", "45")
"""Events in text, and with binary parts, which no page has: numbers of engine.io and of socket.io."""
_EVENT = re.compile(r"42\d*(\[.*)", re.DOTALL)


class PageGuard:
    """The application around NiceGUI."""

    def __init__(self, app: ASGIApp, services: WebServices) -> None:
        self._app = app
        self._files = GZipMiddleware(app)
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an operator."""
        connection = HTTPConnection(scope)
        try:
            principal = await self._services.operators.require(connection)
        except (HttpProblem, QuothError) as problem:
            if scope["type"] != "http" or "text/html" not in connection.headers.get("accept", ""):
                raise
            known = problem if isinstance(problem, HttpProblem) else HttpProblem.of(problem)
            await problem_page(connection, known)(scope, receive, send)
            return
        scope = self._scope_of(scope, principal)
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        elif local_path(connection).startswith("/_nicegui/"):
            await self._files(scope, receive, send)
        else:
            await self._app(scope, receive, _PageSender(send).send)

    def _scope_of(self, scope: Scope, principal: Principal) -> Scope:
        """Return the scope for NiceGUI. Its prefix comes from the configuration, not from the client."""
        headers = [row for row in scope["headers"] if row[0] != PREFIX_HEADER]
        if self._services.config.root_path:
            headers.append((PREFIX_HEADER, self._services.config.root_path.encode()))
        return {**scope, "headers": headers, PRINCIPAL: principal}

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = scope[PRINCIPAL]
        page = HTTPConnection(scope).query_params.get("client_id", "")
        if _owner_of(page) not in (None, principal):
            raise HttpProblem("denied", "another token has loaded this page")
        with self._services.streams.opened(principal) as stream:
            socket = _PageSocket(self._services, HTTPConnection(scope), page, stream, receive, send)
            with contextlib.suppress(OSError):  # the browser has gone while something was sent to it
                await self._app(scope, socket.receive, send)


def _owner_of(page: str) -> Principal | None:
    """Return the principal that has loaded a page; None for one that is not known."""
    client = Client.instances.get(page)
    found: Principal | None = client.request.scope.get(PRINCIPAL) if client is not None else None
    return found


def _names_alone(text: str, page: str) -> bool:
    """Return True if a message of a browser is about one page, or about none."""
    if not text.startswith(_EVENTS):
        return True
    found = _EVENT.fullmatch(text)
    if found is None:
        return False
    try:
        _, about = json.loads(found[1])
        return bool(about["client_id"] == page)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


class _PageSocket:
    """The WebSocket of an open page. page: the id of it at NiceGUI."""

    def __init__(
        self,
        services: WebServices,
        connection: HTTPConnection,
        page: str,
        stream: OpenStream,
        receive: Receive,
        send: Send,
    ) -> None:
        self._services = services
        self._connection = connection
        self._page = page
        self._stream = stream
        self._receive = receive
        self._send = send
        self._checked_at = time.monotonic()

    async def receive(self) -> Message:
        """Return the next message of the browser, which sends one every few seconds; or the end."""
        try:
            message = await self._stream.result_of(self._receive())
            if time.monotonic() - self._checked_at >= CHECKED_S:
                await self._check()
            if not _names_alone(message.get("text") or "", self._page):
                raise HttpProblem("denied", "the socket of a page is for that page")
        except (StreamEnded, HttpProblem, QuothError):
            with contextlib.suppress(OSError):
                await self._send({"type": "websocket.close", "code": 1001})
            return {"type": "websocket.disconnect", "code": 1001}
        return message

    async def _check(self) -> None:
        """Raise an error if the person may not see the page any more. A broker that is away decides later."""
        try:
            await self._services.operators.require(self._connection)
        except QuothError as problem:
            if not problem.retryable:
                raise
        self._checked_at = time.monotonic()


class _PageSender:
    """Sends a page with its policy: the scripts in it, which NiceGUI has written, get a number used once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: dict[str, Any] | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        """Send a part of an answer; a page at once."""
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if headers.get("content-type", "").startswith("text/html"):
                self._start = dict(message)
                return
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._send_page()
            return
        await self._send(message)

    async def _send_page(self) -> None:
        assert self._start is not None, "the head was sent first"
        nonce = secrets.token_urlsafe(16)
        body = self._body.replace(b"<script", f'<script nonce="{nonce}"'.encode())
        headers = MutableHeaders(scope=self._start)
        headers["content-length"] = str(len(body))
        headers["content-security-policy"] = POLICY.format(nonce=nonce)
        headers["referrer-policy"] = "same-origin"  # without one, a browser sends forms with the origin null
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body})
