"""Sessions of people who have logged in with a token: signed cookies, which no table has to hold."""

from __future__ import annotations

import base64
import hmac
import secrets
import struct

from starlette.requests import HTTPConnection
from starlette.responses import Response

COOKIE = "quoth_session"
_BODY = struct.Struct(">Q32s")
_MAC_BYTES = 32


class Sessions:
    """Makes and reads the cookies of one process, whose secret ends with it.

    max_age: seconds. path: that below which the server lies.
    """

    def __init__(self, max_age: float, path: str = "/") -> None:
        self._path = path
        self._secret = secrets.token_bytes(32)
        self._max_age = int(max_age)

    def cookie_of(self, digest: bytes, now: float) -> str:
        """Return the cookie of a session for the token with this digest."""
        body = _BODY.pack(int(now) + self._max_age, digest)
        return base64.urlsafe_b64encode(body + self._mac(body)).decode()

    def digest_of(self, cookie: str, now: float) -> bytes | None:
        """Return the digest of the token that a cookie stands for; None for a wrong or old one."""
        try:
            content = base64.urlsafe_b64decode(cookie.encode("ascii"))
        except ValueError:
            return None
        body, mac = content[: _BODY.size], content[_BODY.size :]
        if len(mac) != _MAC_BYTES or not hmac.compare_digest(mac, self._mac(body)):
            return None
        until, digest = _BODY.unpack(body)
        return digest if until > now else None

    def set_cookie(self, request: HTTPConnection, response: Response, cookie: str) -> None:
        """Let a browser keep the cookie, away from scripts and from requests of other sites."""
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=self._max_age,
            path=self._path,
            secure=request.url.scheme in ("https", "wss"),
            httponly=True,
            samesite="strict",
        )

    def delete_cookie(self, response: Response) -> None:
        """Let a browser forget the cookie."""
        response.delete_cookie(COOKIE, path=self._path, httponly=True, samesite="strict")

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, "sha256")
