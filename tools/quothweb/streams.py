"""Requests that wait for records: their number is limited, and they end with their token or the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from quothweb.access.authentication import Principal
from quothweb.problems import HttpProblem

T = TypeVar("T")

STOPPING, REVOKED = "stopping", "revoked"


class StreamEnded(Exception):
    """Raised where a stream waits when it is to end. reason: ``stopping`` or ``revoked``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OpenStream:
    """One request that waits."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(self, reason: str) -> None:
        """Let the request end. Does nothing the second time."""
        if not self._ended.done():
            self._ended.set_result(reason)

    async def result_of(self, awaited: Awaitable[T]) -> T:
        """Wait for a result. Raises `StreamEnded` if the stream is to end before."""
        task = asyncio.ensure_future(awaited)
        try:
            await asyncio.wait((task, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                raise StreamEnded(self._ended.result())
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def sleep(self, seconds: float) -> None:
        """Wait for a time. Raises `StreamEnded` if the stream is to end before."""
        await self.result_of(asyncio.sleep(seconds))


class Streams:
    """All requests that wait. Belongs to the event loop."""

    def __init__(self, streams_max: int) -> None:
        self._streams_max = streams_max
        self._open: set[OpenStream] = set()
        self._is_stopping = False
        self._all_ended = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def opened(self, principal: Principal) -> Iterator[OpenStream]:
        """Count a stream while it is open. Raises `HttpProblem` if there are as many as there may be."""
        if self._is_stopping:
            raise HttpProblem("shutting_down", "the server ends")
        if len(self._open) >= self._streams_max:
            raise HttpProblem("overloaded", f"{self._streams_max} requests wait for records, the limit")
        stream = OpenStream(principal)
        self._open.add(stream)
        try:
            yield stream
        finally:
            self._open.discard(stream)
            if self._is_stopping and not self._open:
                self._all_ended.set()

    async def stop(self, seconds: float) -> None:
        """End all of them and take no more; wait until they have ended, at most for so many seconds."""
        self._is_stopping = True
        for stream in tuple(self._open):
            stream.end(STOPPING)
        if self._open:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._all_ended.wait()

    def revoke(self, names: Iterable[str]) -> None:
        """End those of some tokens."""
        revoked = set(names)
        for stream in tuple(self._open):
            if stream.principal.name in revoked:
                stream.end(REVOKED)
