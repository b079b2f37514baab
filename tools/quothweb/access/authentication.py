"""Finds the principal of a request: by its token, or a session; the server itself where none is needed."""

from __future__ import annotations

import time
from typing import NamedTuple

from starlette.requests import HTTPConnection

from quothweb.access.attempts import WrongTokens
from quothweb.access.sessions import COOKIE, Sessions
from quothweb.access.token_file import TOKEN_CHARACTERS_MAX, KnownToken, TokenTable, digest_of
from quothweb.config import WebConfig
from quothweb.problems import HttpProblem
from quothweb.service.log_events import note

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="quoth"'}


class Principal(NamedTuple):
    """The sender of a request. name: of its token, "" for the server itself. key_file: its key, or ""."""

    name: str
    key_file: str


class TokenAuthentication:
    """Decides who sends a request. Belongs to the event loop.

    tokens: None if requests need none; then all of them have the key of the server.
    """

    def __init__(self, tokens: TokenTable | None, config: WebConfig) -> None:
        self.tokens = tokens
        self.server = Principal("", config.key_file)
        """The principal of metrics and pages, and of requests where none needs a token."""
        self.sessions = Sessions(config.session_max_age, config.root_path or "/")
        self._wrong = WrongTokens()

    def principal_of(self, connection: HTTPConnection) -> Principal:
        """Return the principal of a request. Raises `HttpProblem` 401, or 429 after many wrong tokens."""
        if self.tokens is None:
            return self.server
        header = connection.headers.get("authorization")
        if header is not None:
            return _principal(self._token_of(header, connection))
        cookie = connection.cookies.get(COOKIE)
        digest = self.sessions.digest_of(cookie, time.time()) if cookie else None
        token = self.tokens.of_digest(digest) if digest is not None else None
        if token is None:
            text = "the session has ended" if cookie else "this server needs a token, and none was given"
            raise HttpProblem("unauthenticated", text, headers=CHALLENGE)
        return _principal(token)

    def log_in(self, token: str, connection: HTTPConnection) -> str:
        """Return the cookie of a session for a token. Raises as `principal_of` does."""
        self._known(token, connection)
        return self.sessions.cookie_of(digest_of(token), time.time())

    def _token_of(self, header: str, connection: HTTPConnection) -> KnownToken:
        scheme, _, given = header.partition(" ")
        if scheme.lower() != "bearer":
            text = "the header Authorization has to be Bearer TOKEN"
            raise HttpProblem("unauthenticated", text, headers=CHALLENGE)
        return self._known(given.strip(), connection)

    def _known(self, token: str, connection: HTTPConnection) -> KnownToken:
        """Return a known token. A right one is never refused for the wrong ones of its address."""
        found = self.tokens.of_digest(digest_of(token)) if self.tokens and token else None
        if found is not None and len(token) <= TOKEN_CHARACTERS_MAX:
            return found
        address = connection.client.host if connection.client else ""
        wait = self._wrong.count(address, time.monotonic())
        if wait:
            text = "this address has sent too many wrong tokens"
            raise HttpProblem("too_many_attempts", text, headers={"Retry-After": f"{wait:.0f}"})
        note("token_denied", address=address)
        text = "no such token is known, or it was revoked"
        challenge = {"WWW-Authenticate": f'{CHALLENGE["WWW-Authenticate"]}, error="invalid_token"'}
        raise HttpProblem("unauthenticated", text, headers=challenge)


def _principal(token: KnownToken) -> Principal:
    return Principal(token.name, token.key_file)
