"""The outermost layer: errors become answers, each answer gets its headers, other sites are refused."""

from __future__ import annotations

import re
import time
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quothweb.problems import HttpProblem
from quothweb.service.log_events import note
from quothweb.services import WebServices
from quothwire.config.addresses import is_loopback
from quothwire.errors import QuothError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Outermost:
    """The application around all others of the server."""

    def __init__(self, app: ASGIApp, services: WebServices) -> None:
        self._app = app
        self._services = services
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever the application raises."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope["quothweb"] = self._services
        answer = _Answer(scope, send, is_cross_origin=bool(self._services.config.cors_origins))
        began = time.monotonic()
        self._in_progress += 1
        try:
            self._check(scope)
            await self._app(scope, receive, answer.send)
        except HttpProblem as problem:
            await answer.problem(problem, receive)
        except QuothError as problem:
            await answer.problem(HttpProblem.of(problem), receive)
        except Exception as problem:
            note("request_failed", problem, path=scope["path"])
            await answer.problem(HttpProblem("defect", "the server met a defect of its own"), receive)
        finally:
            self._in_progress -= 1
            if self._services.config.access_log:
                _note_request(scope, answer.status, began)

    def _check(self, scope: Scope) -> None:
        """Raise `HttpProblem` for a request that the server does not look at."""
        connections_max = self._services.config.connections_max
        if self._in_progress > connections_max:
            raise HttpProblem("overloaded", f"{connections_max} requests are in progress, the limit")
        try:
            path = unquote_to_bytes(scope.get("raw_path") or b"").decode()
        except UnicodeDecodeError:
            raise HttpProblem("bad_request", "the path is not UTF-8", "encode names as UTF-8") from None
        if _CONTROL.search(path):
            raise HttpProblem("bad_request", "the path has a control character", "no name has one")
        connection = HTTPConnection(scope)
        self._check_host(connection)
        self._check_site(connection)

    def _check_host(self, connection: HTTPConnection) -> None:
        """Raise 421 for the name of another site, which a web page can give to this address.

        With tokens that has no use: another site's page has no token, and no cookie of this one.
        """
        if self._services.access.tokens is not None or self._services.config.insecure:
            return
        host = _host_of(connection.headers.get("host", ""))
        config = self._services.config
        if not (is_loopback(host) or host in (config.host, *config.hosts)):
            raise HttpProblem("wrong_host", f"this server has no name {host!r:.100}")

    def _check_site(self, connection: HTTPConnection) -> None:
        """Raise 403 for a request with an effect, or a WebSocket, that a page of another site sends."""
        is_socket = connection.scope["type"] == "websocket"
        if not is_socket and connection.scope["method"] in SAFE_METHODS:
            return
        origin = connection.headers.get("origin")
        site = connection.headers.get("sec-fetch-site", "none")
        if origin is None and site in ("none", "same-origin"):
            return  # no browser, or one that asks for itself
        if origin in self._services.config.cors_origins or _is_own(origin, connection):
            return
        raise HttpProblem("cross_site", f"a page of {origin or 'another site'!r:.100} sends this request")


class _Answer:
    """The answer to one request, with the headers of all."""

    def __init__(self, scope: Scope, send: Send, *, is_cross_origin: bool) -> None:
        self.status = 0
        self._scope = scope
        self._send = send
        self._is_cross_origin = is_cross_origin

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                if not (self._is_cross_origin and name == "Cross-Origin-Resource-Policy"):
                    headers.setdefault(name, value)
        elif message["type"] == "websocket.accept":
            self.status = 101
        await self._send(message)

    async def problem(self, problem: HttpProblem, receive: Receive) -> None:
        """Answer with an error. Behind the beginning of another answer the connection is cut."""
        if self.status:
            return
        if self._scope["type"] == "websocket" and "websocket.http.response" not in self._scope["extensions"]:
            self.status = 403
            await self._send({"type": "websocket.close", "code": 1008, "reason": problem.code})
            return
        await problem.response()(self._scope, receive, self.send)


def _host_of(header: str) -> str:
    """Return the host of a header Host, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _is_own(origin: str | None, connection: HTTPConnection) -> bool:
    """True for the origin of this server, as the client names it."""
    if origin is None:
        return False
    scheme = {"ws": "http", "wss": "https"}.get(connection.url.scheme, connection.url.scheme)
    return origin == f"{scheme}://{connection.headers.get('host', '')}"


def _note_request(scope: Scope, status: int, began: float) -> None:
    method = scope.get("method", "WEBSOCKET")
    client = scope.get("client")
    note(
        "request",
        address=client[0] if client else "",
        method=method,
        path=scope["path"],
        status=status,
        milliseconds=round(1_000 * (time.monotonic() - began), 1),
    )
