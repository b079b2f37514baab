"""The producer for an event loop: the stream of `quoth.producer`, waited for without holding up the loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quoth.aio.io_thread import IOThread
from quoth.core.deadline import as_seconds
from quoth.core.outgoing import ProducerError
from quoth.message import Ack
from quoth.producer import INTERRUPTED_S, ProducerCore, ProducerOptions
from quothwire.errors import Unavailable

if TYPE_CHECKING:
    from quoth.aio.client import Client

TURN = 1_000
"""Records after which others in the loop have a turn, even while there is room for more."""


class Producer(ProducerCore):
    """A stream of records to one topic, made by `Client.producer`: see `quoth.Producer`.

    For tasks of one loop; records of one task keep their order. Closeable, or leaving the `async with` block,
    delivers everything and raises `ProducerError` with what could not be delivered. A block that is cancelled
    is left after a second, whatever is left.
    """

    def __init__(self, client: Client, courier: IOThread, topic: str, options: ProducerOptions) -> None:
        self._client = client
        """Kept, since the connections end with it."""
        self._relay = courier.relay
        self._news = asyncio.Event()
        self._waiting = 0
        """Tasks that wait for news."""
        self._turn = TURN
        self._closing = -1
        """Up to where everything is to be settled before it is closed."""
        self._is_ended = False
        super().__init__(courier.context, courier.url, topic, options)

    async def send(
        self, value: bytes, *, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Put a record into the batch that is being filled: see `quoth.Producer.send`.

        One that is cancelled was not taken.
        """
        self._turn -= 1
        if not self._turn:
            self._turn = TURN
            await asyncio.sleep(0)
        try:
            self._put(value, key=key, headers=headers)
        except Unavailable:
            if self._options.on_full == "raise":
                raise
            await self._put_later(value, key, headers)

    def future(self) -> asyncio.Future[Ack]:
        """What will become of the next record that is sent, and of the batch that it will be in."""
        outer: asyncio.Future[Ack] = self._relay.loop.create_future()
        self._future().add_done_callback(lambda inner: self._relay.put(_hand_on, inner, outer))
        return outer

    async def flush(self, timeout: float | None = None) -> None:
        """Return when everything that was sent before is stored: see `quoth.Producer.flush`.

        One that is cancelled has begun: what was sent before is on its way.
        """
        patience = None if timeout is None else as_seconds(timeout)
        number = self._begin_flush()
        self._end_flush(done=await self._until(lambda: self._is_settled(number), patience))

    async def close(self, timeout: float | None = None) -> None:
        """Take nothing more, flush, and end the thread: see `quoth.Producer.close`.

        One that is cancelled takes nothing more and goes on delivering; the next one ends it.
        """
        patience = None if timeout is None else as_seconds(timeout)
        if os.getpid() != self._pid:
            return
        if not self._closed:
            self._closing = self._begin_close()
        await self._until(lambda: self._is_settled(self._closing), patience)
        if self._is_ended:
            return
        self._is_ended = True
        self._end_thread()
        with self._changed:
            self._tell_failures()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            await self.close()
            return
        with suppress(ProducerError):
            await self.close(INTERRUPTED_S)

    async def _put_later(self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None) -> None:
        deadline = time.monotonic() + self._options.timeout
        while await self._until(self._may_put, deadline - time.monotonic()):
            with suppress(Unavailable):  # another task was faster
                self._put(value, key=key, headers=headers)
                return
        raise self._busy("wait and wait")

    def _may_put(self) -> bool:
        return self._closed or self._end is not None or self._has_room()

    async def _until(self, check: Callable[[], bool], patience: float | None) -> bool:
        """Wait until something is so, at most for so many seconds; is it?"""
        self._waiting += 1
        try:
            async with asyncio.timeout(patience):
                while True:
                    self._news.clear()
                    if check():
                        return True
                    await self._news.wait()
        except TimeoutError:
            return check()
        finally:
            self._waiting -= 1

    def _notify(self) -> None:
        super()._notify()
        if self._waiting:
            self._relay.put(self._news.set)


def _hand_on(inner: Future[Ack], outer: asyncio.Future[Ack]) -> None:
    """Let what is awaited become what the thread was told."""
    if outer.done():
        return
    problem = inner.exception()
    if problem is None:
        outer.set_result(inner.result())
    else:
        outer.set_exception(problem)
        outer.exception()  # nobody has to look at it: `flush` and `close` tell it, too
