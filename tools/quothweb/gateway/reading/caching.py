"""Answers that caches may keep: the records of a past range, which never change. Everything else is not kept.

The entity tag has the id of the log, so a topic that was created again has other tags. An answer that is
compressed has another one than the same in the clear.
"""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from quothweb.gateway.operation import GatewayCall

MAX_AGE_S = 31_536_000
_VARY = "Accept, Accept-Encoding"


class CacheEntry:
    """The answer to a request, as a cache knows it. content: names its content. is_kept: it never changes."""

    def __init__(self, content: str, is_kept: bool) -> None:
        self._content = content
        self._is_kept = is_kept

    def headers(self, call: GatewayCall, *, zipped: bool = False) -> dict[str, str]:
        """Return the headers for caches."""
        services = call.services
        vary = _VARY if services.access.tokens is None else f"{_VARY}, Authorization, Cookie"
        if not self._is_kept:
            return {"Cache-Control": "no-store", "Vary": vary}
        scope = "public" if services.config.public_cache else "private"
        kept = f"{scope}, max-age={MAX_AGE_S}, immutable"
        return {"Cache-Control": kept, "ETag": self._tag(zipped=zipped), "Vary": vary}

    def is_known(self, request: Request, *, zipped: bool = False) -> bool:
        """True if the client has this very answer, so that nothing has to be read."""
        if not self._is_kept:
            return False
        given = ",".join(request.headers.getlist("if-none-match"))
        tags = [tag.strip().removeprefix("W/") for tag in given.split(",")]
        return self._tag(zipped=zipped) in tags or "*" in tags

    def _tag(self, *, zipped: bool) -> str:
        digest = hashlib.blake2b(self._content.encode(), digest_size=12).hexdigest()
        return f'"{digest}-gzip"' if zipped else f'"{digest}"'


def is_zipped(request: Request) -> bool:
    """True if the client takes gzip, and says so."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name == "gzip":
            return not any(
                one.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for one in parameters
            )
    return False
