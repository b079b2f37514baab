"""Reads the bodies of requests: within a size, a time, and the memory of all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quothweb.gateway.operation import GatewayCall
from quothweb.problems import HttpProblem
from quothweb.service.request_body import CLOSE, whole_body
from quothwire.errors import error

JSON_BYTES_MAX = 64 * 1024
"""Settings, and a settlement of thousands of records."""


@asynccontextmanager
async def body_of(call: GatewayCall, bytes_max: int) -> AsyncIterator[bytes]:
    """Read the body of a request, which counts as memory of the server until the block is left.

    Raises `HttpProblem`: ``too_large``, ``slow_request``, ``overloaded``.
    """
    held = _Held(call, bytes_max)
    try:
        yield await held.read()
    finally:
        call.services.body_bytes -= held.size


async def json_of(call: GatewayCall) -> dict[str, Any]:
    """Read a body that is an object of JSON; an empty body stands for an empty object."""
    require_type(call, ("application/json",), default="application/json")
    async with body_of(call, JSON_BYTES_MAX) as body:
        if not body:
            return {}
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise error("bad_request", "the body is no JSON", 'like {"durability": "synced"}') from None
    if not isinstance(found, dict):
        raise error("bad_request", "the body is no object of JSON", 'like {"durability": "synced"}')
    return found


def require_type(call: GatewayCall, types: tuple[str, ...], default: str) -> str:
    """Return the type of the body. Raises `HttpProblem` 415 for one that is not among some."""
    given = media_type_of(call) or default
    if given not in types:
        text = f"the body is {given!r:.100}, and this path takes {' or '.join(types)}"
        raise HttpProblem("unsupported_media_type", text, headers={"Accept": ", ".join(types)})
    return given


def media_type_of(call: GatewayCall) -> str:
    """Return the type of the body in lower case, without its parameters; "" if none is given."""
    return call.request.headers.get("content-type", "").partition(";")[0].strip().lower()


class _Held:
    """A body that is being read. size: the bytes that are counted for it."""

    def __init__(self, call: GatewayCall, bytes_max: int) -> None:
        self._call = call
        self._bytes_max = bytes_max
        self.size = 0

    async def read(self) -> bytes:
        """Return the whole body."""
        declared = self._call.request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit():
            self._require(int(declared[:20]))
        seconds = self._call.services.config.request_timeout
        return await whole_body(self._call.request, seconds, self._require)

    def _require(self, size: int) -> None:
        """Count the memory for so many bytes."""
        if size > self._bytes_max:
            text = f"the body has more than {self._bytes_max:,} bytes"
            raise HttpProblem("too_large", text, "nothing of it was stored", headers=CLOSE)
        more = size - self.size
        if more <= 0:
            return
        services = self._call.services
        if services.body_bytes + more > services.config.bodies_bytes_max:
            raise HttpProblem("overloaded", "the bodies of other requests take all memory", headers=CLOSE)
        services.body_bytes += more
        self.size = size
