"""Answers that are sent while they are made, in parts, as fast as the client takes them."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quothweb.gateway.reading.formats import AnswerCut

GZIP_LEVEL = 4
_GZIP = 31
"""The window bits of zlib for the format of gzip."""


class RecordStream(Response):
    """An answer made of parts. It ends with the client, and is cut where the parts cannot go on.

    parts: at most a few KiB each. is_zipped: compress them. flushes: the client gets each part at once. held:
    is left when the answer has ended.
    """

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str],
        *,
        is_zipped: bool = False,
        flushes: bool = False,
        held: AbstractContextManager[object] | None = None,
    ) -> None:
        self.background = None
        self.status_code = 200
        self.media_type = None
        self._parts = parts
        self._zip = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP) if is_zipped else None
        self._flushes = flushes
        self._held = held if held is not None else nullcontext()
        more = {"Content-Encoding": "gzip"} if is_zipped else {}
        self.init_headers({**headers, **more, "Content-Type": media_type})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; only its headers for HEAD."""
        with self._held:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_client_gone(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except AnswerCut:
            pass  # the answer stays without its end, and the connection is closed
        finally:
            for task in (sending, gone):
                task.cancel()
                with suppress(asyncio.CancelledError, AnswerCut):
                    await task

    async def _send(self, send: Send) -> None:
        async for part in self._parts:
            body = self._zipped(part)
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.sleep(0)  # other requests go on between two parts
        rest = self._zip.flush() if self._zip is not None else b""
        await send({"type": "http.response.body", "body": rest})

    def _zipped(self, part: bytes) -> bytes:
        if self._zip is None:
            return part
        return self._zip.compress(part) + (self._zip.flush(zlib.Z_SYNC_FLUSH) if self._flushes else b"")


async def begun(parts: AsyncIterator[bytes], size: int) -> AsyncIterator[bytes]:
    """Make so many bytes of an answer now, or all of it; returns the same parts, an error in its place."""
    made: list[bytes] = []
    cut: AnswerCut | None = None
    is_over = False
    try:
        while sum(map(len, made)) < size and not is_over:
            part = await anext(parts, None)
            is_over = part is None
            made += [part] if part is not None else []
    except AnswerCut as problem:
        cut = problem

    async def again() -> AsyncIterator[bytes]:
        for part in made:
            yield part
        if cut is not None:
            raise cut
        if not is_over:
            async for part in parts:
                yield part

    return again()


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
