"""A member of a consumer group, for an event loop: see `quoth.groups`."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar
from weakref import finalize

from quoth.aio.io_thread import IOThread, LoopBridge
from quoth.core.calls import ClientState, coroutine_of, method_of
from quoth.core.request_state import ClientCall
from quoth.groups import calls, leased
from quoth.groups.calls import ConsumerWork
from quoth.groups.io_thread import MemberThread
from quoth.groups.leased import Leased, LeasedBatch, LeasedMessage
from quoth.groups.member import GroupMember
from quoth.groups.options import GroupOptions
from quoth.groups.settlements import GroupCall, Wait, Waiter
from quothwire.errors import QuothError, error

T = TypeVar("T")


async def drive(call: GroupCall[T]) -> T:
    """Execute work of a member, and wait where it has to."""
    try:
        wait = next(call)
        while True:
            wait = call.send(await _is_done(wait))
    except StopIteration as end:
        result: T = end.value
        return result


async def _is_done(wait: Wait) -> bool:
    waiter = wait.waiter
    if waiter is None:
        await asyncio.sleep(wait.seconds)
        return False
    assert isinstance(waiter, _LoopWaiter), "this client has made it"
    if not waiter.done():
        await asyncio.wait([waiter.future], timeout=None if wait.seconds == math.inf else wait.seconds)
    return waiter.done()


class Settleable(Leased):
    """Records that are to be settled, by any task of the loop."""

    __slots__ = ()

    async def _finish(self, waiter: Waiter | None) -> None:
        await drive(self._queue.awaited(waiter))

    ack = coroutine_of(leased.ack, _finish, "None")
    nack = coroutine_of(leased.nack, _finish, "None")
    release = coroutine_of(leased.release, _finish, "None")
    extend = coroutine_of(leased.extend, _finish, "None")
    term = coroutine_of(leased.term, _finish, "None")


class GroupMessage(Settleable, LeasedMessage):
    """One record of a `ConsumerGroup`: a `Message` under a lease, which is to be settled."""


class GroupBatch(Settleable, LeasedBatch):
    """Consecutive records of a `ConsumerGroup`: a `Batch` under a lease, settled as one."""

    __slots__ = ()


class _LoopWaiter:
    """A future that the thread of a member completes, and that tasks of the loop wait for."""

    def __init__(self, bridge: LoopBridge) -> None:
        self.future: asyncio.Future[None] = bridge.loop.create_future()
        self._bridge = bridge
        self._is_done = False
        self._result: QuothError | None = None

    def done(self) -> bool:
        """Return True if it has a result."""
        return self._is_done

    def set_result(self, result: QuothError | None, /) -> None:
        """Set the result. Any thread may call it."""
        self._result, self._is_done = result, True
        self._bridge.put(self._wake)

    def result(self) -> QuothError | None:
        """Return the result."""
        return self._result

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class ConsumerGroup(ConsumerWork[GroupMessage, GroupBatch]):
    """A member of a consumer group, made by `Client.group`: see `quoth.ConsumerGroup`.

    Its records may be settled by any task of its loop. A wait for a record that is cancelled loses none.
    """

    def __init__(self, client: ClientState, io_thread: IOThread, options: GroupOptions) -> None:
        new_waiter = partial(_LoopWaiter, io_thread.bridge)
        member = GroupMember(options, client.timeout, client._timing, new_waiter)
        super().__init__(client, member, GroupMessage, GroupBatch)
        self._io_thread = io_thread
        self._thread: MemberThread | None = None
        self._turn = asyncio.Lock()
        """One task at a time fetches."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<quoth.aio.ConsumerGroup {self.name!r} of {self.topic!r}, member {self.member!r}>"

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(value)

    async def close(self) -> None:
        """Acknowledge the record in hand, and give back those behind it."""
        await self._end(sys.exception())

    def __aiter__(self) -> GroupIteration[GroupMessage]:
        """Iterate over records for ever."""
        return GroupIteration(self, self._next_message, lambda: calls.more(self))

    async def _messages(self, call: GroupCall[list[GroupMessage]]) -> list[GroupMessage]:
        return await self._drive(call)

    def _batches(self, n: int) -> GroupIteration[GroupBatch]:
        return GroupIteration(self, self._next_batch, lambda: calls.more_batches(self, n))

    # -- inside -----------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Create the group, and start the thread of the member."""
        if self._is_closed:
            raise error("closed", "the member of the group was closed", "make another one")
        self._io_thread.check()
        if self._thread is None:
            self._thread = MemberThread(self._io_thread.context, self._io_thread.endpoint, self._member)
            finalize(self, self._thread.stop)
        if not self.is_opened:
            await self._client._run(calls.opened(self))

    async def _end(self, problem: BaseException | None) -> None:
        thread, self._is_closed = self._thread, True
        if thread is None or not thread.is_running:
            return
        self._member.begin_closing()
        try:
            self._leave(problem)
            await drive(calls.left(self, self._closing_seconds(problem)))
        except QuothError as failure:
            if problem is None:
                raise
            logging.getLogger("quoth").warning("%r: %s", self, failure)
        finally:
            thread.stop()
            thread.join()

    async def _drive(self, call: GroupCall[T]) -> T:
        async with self._turn:
            await self._begin()
            return await drive(call)

    async def _run(self, call: ClientCall[T]) -> T:
        """Execute a call that shows, or changes, the group: all settlements of before come first."""
        if self._thread is not None and self._thread.is_running:
            self._member.finish_left()
            await drive(self._member.queue.settled(self._client.timeout))
            self._member.queue.check()
        result: T = await self._client._run(call)
        return result

    fetch = coroutine_of(calls.fetch, _messages, "list[GroupMessage]")
    batches = method_of(calls.batches, _batches, "GroupIteration[GroupBatch]")
    info = coroutine_of(calls.info, _run)
    lag = coroutine_of(calls.lag, _run)
    checkpoint = coroutine_of(calls.checkpoint, _run)
    pending = coroutine_of(calls.pending, _run)
    seek = coroutine_of(calls.seek, _run)
    pause = coroutine_of(calls.pause, _run)
    resume = coroutine_of(calls.resume, _run)
    update = coroutine_of(calls.update, _run)
    delete = coroutine_of(calls.delete, _run)


class GroupIteration(Generic[T]):
    """An iteration over the records or batches of a group, made by `ConsumerGroup`. For one task at a time.

    A wait that is cancelled loses nothing: the next one continues.
    """

    def __init__(
        self, group: ConsumerGroup, take: Callable[[], T | None], more: Callable[[], GroupCall[T]]
    ) -> None:
        self._group = group
        self._take = take
        self._more = more

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Return the next element, and acknowledge the one before."""
        found = self._take()
        return await self._group._drive(self._more()) if found is None else found

    async def aclose(self) -> None:
        """End it. The element in hand is acknowledged by the next call of the group."""
        self._group._member.leave_iteration()

    def __del__(self) -> None:
        self._group._member.leave_iteration()
