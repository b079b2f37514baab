"""Reading a topic on in an event loop: objects, not generators, because a wait for one may be cancelled.

What is read is taken out at the very end of `__anext__`, when nothing is waited for any more, and what is on
its way stays on its way. So a wait that is cancelled loses nothing: the next one goes on where it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import sleep
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from quoth.aio.call_driver import CallDriver
from quoth.aio.io_thread import IOThread, Ticket
from quoth.batch import Batch
from quoth.core.request_state import ClientCall
from quoth.core.tailing import TailState
from quoth.message import Message
from quoth.reader import BatchCursor
from quothwire.errors import QuothError, error

if TYPE_CHECKING:
    from quoth.aio.client import Client

T = TypeVar("T")
B = TypeVar("B")


class TopicIterator(ABC, Generic[T, B]):
    """What both iterators share. One task at a time waits for it; an error ends it."""

    def __init__(self, client: Client, courier: IOThread, reader: BatchCursor[B]) -> None:
        self._client = client
        self._courier = courier
        self._reader = reader
        self._found: Iterator[T] = iter(())
        self._walk: CallDriver[Iterator[B]] | None = None
        self._ahead: Ticket | None = None
        self._is_awaited = self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._is_alone()
        try:
            for one in self._found:
                return one
            return await self._next()
        except Exception:
            self._end()
            raise

    async def aclose(self) -> None:
        """End it: what is on its way is of no use any more."""
        self._end()

    def __del__(self) -> None:
        self._end()

    @abstractmethod
    async def _find_more(self) -> None:
        """Put into `_found` what comes next, or say that it is over."""

    async def _next(self) -> T:
        """The next one when none is at hand."""
        self._is_awaited = True
        try:
            while not self._is_over:
                for one in self._found:
                    return one
                await self._find_more()
        except QuothError:
            if not self._is_over:  # else another task has ended it meanwhile
                raise
        finally:
            self._is_awaited = False
        raise StopAsyncIteration

    async def _go_on(self, going_on: Callable[[], ClientCall[Iterator[B]]]) -> Iterator[B]:
        """What the steps come to; what follows is asked for then. After a cancelled wait it goes on."""
        if self._walk is None:
            ahead, self._ahead = self._ahead, None
            self._walk = CallDriver(self._courier, going_on(), ahead)
        try:
            found = await self._walk.end()
        except QuothError:
            self._walk = None
            raise
        self._walk = None
        if self._reader.ahead is not None:
            self._ahead = self._courier.ask(self._reader.ahead)
        return found

    def _is_alone(self) -> None:
        if self._is_awaited:
            text = f"another task waits for the next of {self._reader.topic!r}, too"
            raise error("bad_request", text, "let each task have an iterator of its own")

    def _end(self) -> None:
        self._is_over = True
        self._found = iter(())
        walk, self._walk = self._walk, None
        if walk is not None:
            walk.drop()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._courier.drop(ahead)


class Batches(TopicIterator[B, B]):
    """Made by `Client.batches` and `Client.stored`. wait: seconds to wait for more at the end."""

    def __init__(self, client: Client, courier: IOThread, reader: BatchCursor[B], wait: float = 0.0) -> None:
        super().__init__(client, courier, reader)
        self._wait = wait
        self._is_begun = False

    async def _find_more(self) -> None:
        reader = self._reader
        if reader.is_done or (self._is_begun and not reader.looking):
            self._is_over = True
            return
        timeout = self._client.timeout
        self._found = await self._go_on(lambda: reader.go_on(wait=self._wait, timeout=timeout))
        self._is_begun = True


class Tail(TopicIterator[Message, Batch]):
    """Made by `Client.tail`. When it was awaited it has begun: all that is published later is in it."""

    def __init__(self, client: Client, courier: IOThread, tailing: TailState) -> None:
        super().__init__(client, courier, tailing.reader)
        self._tailing = tailing
        self._has_begun = False
        self._beginning: CallDriver[None] | None = None
        if not tailing.is_placed:
            self._beginning = CallDriver(courier, tailing.reader.find_end())

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begun().__await__()

    async def _begun(self) -> Self:
        self._is_alone()
        self._is_awaited = True
        try:
            await self._begin()
        except Exception:
            self._end()
            raise
        finally:
            self._is_awaited = False
        return self

    async def _begin(self) -> None:
        if self._beginning is not None:
            await self._beginning.end()
            self._beginning = None
        if not self._has_begun:
            self._has_begun = True
            self._tailing.begin()

    async def _find_more(self) -> None:
        await self._begin()
        self._tailing.save()
        reader = self._reader
        try:
            found = await self._go_on(lambda: self._tailing.follow(self._client.timeout))
        except QuothError as problem:
            await sleep(reader.pause_after(problem))
            return
        self._found = chain.from_iterable(map(self._tailing.messages, found))

    def _end(self) -> None:
        super()._end()
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.drop()
        self._tailing.close()
