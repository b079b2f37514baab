"""Iterators in an event loop: objects, not generators, because a wait for one may be cancelled.

Records are taken out at the very end of `__anext__`, when nothing is awaited any more, and requests in flight
stay in flight. So a cancelled wait loses nothing: the next one continues.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import sleep
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Generic, Self, TypeVar

from quoth.aio.io_thread import IOThread, Ticket
from quoth.aio.requests import CallDriver
from quoth.batch import Batch
from quoth.core.calls import ClientState
from quoth.core.request_state import ClientCall
from quoth.core.tailing import TailState
from quoth.message import Message
from quoth.reader import BatchCursor
from quothwire.errors import QuothError, error

T = TypeVar("T")
B = TypeVar("B")


class LoopIterator(ABC, Generic[T]):
    """An iterator for one task at a time. An error ends it, a cancelled wait does not.

    client: kept, since its connections end with it. what, kind: its names in an error.
    """

    def __init__(self, client: ClientState, io_thread: IOThread, what: str, kind: str) -> None:
        self._client = client
        self._io_thread = io_thread
        self._names = what, kind
        self._found: Iterator[T] = iter(())
        self._is_awaited = self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next element."""
        if not self._is_awaited:
            try:
                for one in self._found:
                    return one
            except Exception:
                self._end()
                raise
        return await self._next()

    async def aclose(self) -> None:
        """End it, and give its requests up. Does nothing the second time."""
        self._end()

    def __del__(self) -> None:
        self._end()

    @abstractmethod
    async def _find_more(self) -> None:
        """Set `_found` to what comes next, or `_is_over`, or wait for what decides that."""

    async def _begin(self) -> None:
        """Wait until it is known where it begins. May be called again."""

    async def _begun(self) -> Self:
        with self._alone():
            await self._begin()
        return self

    async def _next(self) -> T:
        """Return the next element if none is at hand."""
        with self._alone():
            while not self._is_over:
                for one in self._found:
                    return one
                try:
                    await self._find_more()
                except QuothError:
                    if not self._is_over:  # else another task has ended it meanwhile
                        raise
            raise StopAsyncIteration

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one task wait; an error ends the iterator."""
        if self._is_awaited:
            what, kind = self._names
            text = f"another task waits for the next of {what}, too"
            raise error("bad_request", text, f"let each task have {kind} of its own")
        self._is_awaited = True
        try:
            yield
        except Exception:
            self._end()
            raise
        finally:
            self._is_awaited = False

    def _end(self) -> None:
        self._is_over = True
        self._found = iter(())


class TopicIterator(LoopIterator[T], Generic[T, B]):
    """An iterator over one topic."""

    def __init__(self, client: ClientState, io_thread: IOThread, reader: BatchCursor[B]) -> None:
        super().__init__(client, io_thread, repr(reader.topic), "an iterator")
        self._reader = reader
        self._fetching: CallDriver[Iterator[B]] | None = None
        self._prefetch: Ticket | None = None

    async def _fetch(self, begin: Callable[[], ClientCall[Iterator[B]]]) -> Iterator[B]:
        """Wait for a fetch, and send the next one. Continues the same fetch after a cancelled wait."""
        if self._fetching is None:
            prefetch, self._prefetch = self._prefetch, None
            self._fetching = CallDriver(self._io_thread, begin(), prefetch)
        try:
            found = await self._fetching.result()
        except QuothError:
            self._fetching = None
            raise
        self._fetching = None
        if self._reader.prefetch is not None:
            self._prefetch = self._io_thread.ask(self._reader.prefetch)
        return found

    def _end(self) -> None:
        super()._end()
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.drop()
        prefetch, self._prefetch = self._prefetch, None
        if prefetch is not None:
            self._io_thread.drop(prefetch)


class Batches(TopicIterator[B, B]):
    """Made by `Client.batches` and `Client.stored`."""

    async def _find_more(self) -> None:
        reader = self._reader
        if reader.is_done:
            self._is_over = True
            return
        timeout = self._client.timeout
        self._found = await self._fetch(lambda: reader.fetch_ahead(wait=reader.wait, timeout=timeout))


class Tail(TopicIterator[Message, Batch]):
    """Made by `Client.tail`. Once awaited it has begun: it yields all that is published later."""

    def __init__(self, client: ClientState, io_thread: IOThread, state: TailState) -> None:
        super().__init__(client, io_thread, state.reader)
        self._state = state
        self._has_begun = False
        self._beginning: CallDriver[None] | None = None
        if not state.is_placed:
            self._beginning = CallDriver(io_thread, state.reader.find_end())

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begun().__await__()

    async def _begin(self) -> None:
        if self._beginning is not None:
            await self._beginning.result()
            self._beginning = None
        if not self._has_begun:
            self._has_begun = True
            self._state.begin()

    async def _find_more(self) -> None:
        await self._begin()
        self._state.save()
        try:
            found = await self._fetch(lambda: self._state.follow(self._client.timeout))
        except QuothError as problem:
            await sleep(self._state.pause_after(problem))
            return
        self._found = chain.from_iterable(map(self._state.messages, found))

    def _end(self) -> None:
        super()._end()
        beginning, self._beginning = self._beginning, None
        if beginning is not None:
            beginning.drop()
        self._state.close()
