"""Reads the body of a request, which has to come in time and may not be too large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request

from quothweb.problems import HttpProblem

LOGIN_BYTES_MAX = 4_096
CLOSE = {"Connection": "close"}
"""The rest of the body is not read."""


async def whole_body(request: Request, seconds: float, require: Callable[[int], None]) -> bytes:
    """Read a body within a time. Raises `HttpProblem` ``slow_request``, or ``cut_body``.

    require: called with the bytes so far, raises an error if they are too many.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                require(size)
                parts.append(part)
    except TimeoutError:
        raise HttpProblem("slow_request", "the body did not come in time", headers=CLOSE) from None
    except ClientDisconnect:
        raise HttpProblem("cut_body", "the client has gone before the end of the body") from None
    return b"".join(parts)


async def login_body(request: Request, seconds: float) -> bytes:
    """Read a body with a token. Raises as `whole_body` does, and `HttpProblem` ``too_large``."""
    return await whole_body(request, seconds, _require_small)


def _require_small(size: int) -> None:
    if size > LOGIN_BYTES_MAX:
        raise HttpProblem("too_large", "the body is larger than one with a token", headers=CLOSE)
