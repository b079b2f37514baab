"""The producer for an event loop: the `ProducerCore`, awaited without blocking the loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Self

from quoth.aio.io_thread import IOThread
from quoth.core.options import as_seconds
from quoth.core.outgoing import ProducerError
from quoth.core.streams import ProducerOptions
from quoth.message import Ack
from quoth.producer import ProducerCore
from quothwire.errors import Unavailable

YIELD_RECORDS = 1_000
"""Records after which other tasks of the loop run, even while there is room for more."""


class Producer(ProducerCore):
    """A stream of records to one topic, made by `Client.producer`: see `quoth.Producer`.

    For tasks of one loop; records of one task keep their order. Closing it, or leaving the `async with`
    block, delivers everything and raises `ProducerError` with the batches that could not be delivered. A
    cancelled block is left after a second, whatever is in flight.
    """

    def __init__(self, client: object, io_thread: IOThread, options: ProducerOptions) -> None:
        self._client = client
        """Kept, since its connections end with it."""
        self._bridge = io_thread.bridge
        self._event = asyncio.Event()
        self._waiting = 0
        """The number of tasks that wait for the event."""
        self._until_yield = YIELD_RECORDS
        self._closing = -1
        """The number of the last batch to settle before it is closed."""
        self._is_ended = False
        super().__init__(io_thread.context, io_thread.endpoint, options, io_thread.timing)

    async def send(
        self, value: bytes, *, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Append a record to the batch that is being filled: see `quoth.Producer.send`.

        The record of a cancelled call was not taken.
        """
        self._until_yield -= 1
        if not self._until_yield:
            self._until_yield = YIELD_RECORDS
            await asyncio.sleep(0)
        try:
            self._put(value, key=key, headers=headers)
        except Unavailable:
            if self._options.on_full == "raise" or self.failure is not None:
                raise
            await self._put_later(value, key, headers)

    def future(self) -> asyncio.Future[Ack]:
        """Return the future of the next record that is sent, and so of its batch."""
        outer: asyncio.Future[Ack] = self._bridge.loop.create_future()
        self._future().add_done_callback(lambda inner: self._bridge.put(_complete, inner, outer))
        return outer

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent before is stored: see `quoth.Producer.flush`.

        A cancelled call has begun: what was sent before is in flight.
        """
        seconds = None if timeout is None else as_seconds(timeout)
        number = self._begin_flush()
        self._end_flush(done=await self._until(lambda: self._is_settled(number), seconds))

    async def close(self, timeout: float | None = None) -> None:
        """Take nothing more, flush, and end the thread: see `quoth.Producer.close`.

        After a cancelled call it takes nothing more and goes on delivering; the next call ends it.
        """
        seconds = None if timeout is None else as_seconds(timeout)
        if os.getpid() != self._pid:
            return
        if not self._closed:
            self._closing = self._begin_close()
        await self._until(lambda: self._is_settled(self._closing), seconds)
        if self._is_ended:
            return
        self._is_ended = True
        self._end_thread()
        with self._changed:
            self._raise_failures()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            await self.close()
            return
        with suppress(ProducerError):
            await self.close(self._timing.interrupted)

    async def _put_later(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
        deadline = time.monotonic() + self._options.timeout
        while await self._until(self._may_put, deadline - time.monotonic()):
            self._check_sending()
            with suppress(Unavailable):  # another task has filled the buffer again
                self._put(value, key=key, headers=headers)
                return
        raise self._busy("wait and wait")

    def _may_put(self) -> bool:
        return self._is_over or self._has_room()

    async def _until(self, check: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until a check is true, at most for so many seconds; returns its result."""
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._event.clear()
                    if check():
                        return True
                    await self._event.wait()
        except TimeoutError:
            return check()
        finally:
            self._waiting -= 1

    def _notify(self) -> None:
        super()._notify()
        if self._waiting:
            self._bridge.put(self._event.set)


def _complete(inner: Future[Ack], outer: asyncio.Future[Ack]) -> None:
    """Complete a future of the loop with the outcome of the thread's future."""
    if outer.done():
        return
    problem = inner.exception()
    if problem is None:
        outer.set_result(inner.result())
    else:
        outer.set_exception(problem)
        outer.exception()  # it may stay unread: `flush` and `close` raise it, too
