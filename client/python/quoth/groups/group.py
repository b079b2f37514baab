"""A member of a consumer group, for the blocking client."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar
from weakref import finalize

from quoth.connection.pool import Pool
from quoth.core.calls import ClientState, method_of
from quoth.core.request_state import ClientCall
from quoth.groups import calls, leased
from quoth.groups.calls import ConsumerWork
from quoth.groups.io_thread import MemberThread
from quoth.groups.leased import Leased, LeasedBatch, LeasedMessage
from quoth.groups.member import GroupMember
from quoth.groups.options import GroupOptions
from quoth.groups.settlements import GroupCall, Waiter
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error

T = TypeVar("T")


def drive(call: GroupCall[T]) -> T:
    """Execute work of a member, and wait where it has to."""
    try:
        wait = next(call)
        while True:
            wait = call.send(_is_done(wait.waiter, wait.seconds))
    except StopIteration as end:
        result: T = end.value
        return result


def _is_done(waiter: Waiter | None, seconds: float) -> bool:
    future: Future[None] = Future() if waiter is None else waiter  # type: ignore[assignment]
    try:
        future.result(min(seconds, threading.TIMEOUT_MAX))
    except TimeoutError:
        return False
    return True


class Settleable(Leased):
    """Records that are to be settled, by any thread."""

    __slots__ = ()

    def _finish(self, waiter: Waiter | None) -> None:
        drive(self._queue.awaited(waiter))

    ack = method_of(leased.ack, _finish, "None")
    nack = method_of(leased.nack, _finish, "None")
    release = method_of(leased.release, _finish, "None")
    extend = method_of(leased.extend, _finish, "None")
    term = method_of(leased.term, _finish, "None")


class GroupMessage(Settleable, LeasedMessage):
    """One record of a `ConsumerGroup`: a `Message` under a lease, which is to be settled."""


class GroupBatch(Settleable, LeasedBatch):
    """Consecutive records of a `ConsumerGroup`: a `Batch` under a lease, settled as one."""

    __slots__ = ()


def extend_all(records: Sequence[GroupMessage], seconds: float) -> None:
    """Extend the leases of records, in as few requests as possible.

    Raises the first error, as `extend` does. An error of an earlier ack is left to a call of the group.
    """
    for one, waiter in zip(records, leased.extend_all(records, seconds), strict=True):
        one._finish(waiter)


class ConsumerGroup(ConsumerWork[GroupMessage, GroupBatch], Closeable):
    """A member of a consumer group, made by `Client.group`. Its records may be settled by any thread.

    Iterating yields records for ever, and waits for more. A record is acknowledged when its body is left: by
    the next iteration, and after a break by the next call of the group or the end of the ``with`` block. An
    exception that leaves the ``with`` block gives it back instead, and so does a call of `nack`. What was
    fetched and not handed out is given back at the end, too.

    An iteration asks for several records at once as long as they are handled quickly. It waits for a broker
    that is not there. An error of an ack that was not waited for is raised by the next call, or at the end.
    """

    def __init__(self, client: ClientState, pool: Pool, options: GroupOptions) -> None:
        member = GroupMember(options, client.timeout, client._timing, Future)
        super().__init__(client, member, GroupMessage, GroupBatch)
        self._thread: MemberThread | None = None
        self._turn = threading.RLock()
        """One thread at a time fetches."""
        self._is_closed = False
        self._pool = pool

    def __repr__(self) -> str:
        return f"<quoth.ConsumerGroup {self.name!r} of {self.topic!r}, member {self.member!r}>"

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(value)

    def close(self) -> None:
        """Acknowledge the record in hand, give back those behind it, and wait until all is settled.

        While an exception is handled it gives the record in hand back, too. Raises the error of an ack that
        was not waited for; while an exception is handled it is logged. Does nothing the second time. A thread
        that waits for records meanwhile gets ``closed``, and the records are given back. The record in hand
        is acknowledged even if another thread still executes its body: let that end first.
        """
        self._end(sys.exception())

    def __iter__(self) -> Iterator[GroupMessage]:
        """Iterate over records for ever."""
        try:
            while True:
                message = self._next_message()
                yield self._drive(calls.more(self)) if message is None else message
        finally:
            self._member.leave_iteration()

    def _messages(self, call: GroupCall[list[GroupMessage]]) -> list[GroupMessage]:
        return self._drive(call)

    def _batches(self, n: int) -> Iterator[GroupBatch]:
        try:
            while True:
                batch = self._next_batch()
                yield self._drive(calls.more_batches(self, n)) if batch is None else batch
        finally:
            self._member.leave_iteration()

    # -- inside -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Create the group, and start the thread of the member."""
        if self._is_closed:
            raise error("closed", "the member of the group was closed", "make another one")
        if self._thread is None:
            self._thread = MemberThread(self._pool.context, self._pool.endpoint, self._member)
            finalize(self, self._thread.stop)
        self._thread.check_process()
        if not self.is_opened:
            self._client._run(calls.opened(self))

    def _end(self, problem: BaseException | None) -> None:
        thread, self._is_closed = self._thread, True
        if thread is None or not thread.is_running:
            return
        seconds = self._closing_seconds(problem)
        self._member.begin_closing()
        is_alone = False
        try:
            # Another thread may wait for records, and notices when the broker answers its fetch.
            is_alone = self._turn.acquire(timeout=min(seconds, 2 * self._member.timing.group_wait))
            self._leave(problem)
            drive(calls.left(self, seconds))
        except QuothError as failure:
            if problem is None:
                raise
            logging.getLogger("quoth").warning("%r: %s", self, failure)
        finally:
            if is_alone:
                self._turn.release()
            thread.stop()
            thread.join()

    def _drive(self, call: GroupCall[T]) -> T:
        with self._turn:
            self._begin()
            return drive(call)

    def _run(self, call: ClientCall[T]) -> T:
        """Execute a call that shows, or changes, what the group has: all settlements of before come first."""
        if self._thread is not None and self._thread.is_running:
            self._member.finish_left()
            drive(self._member.queue.settled(self._client.timeout))
            self._member.queue.check()
        result: T = self._client._run(call)
        return result

    fetch = method_of(calls.fetch, _messages, "list[GroupMessage]")
    batches = method_of(calls.batches, _batches, "Iterator[GroupBatch]")
    info = method_of(calls.info, _run)
    lag = method_of(calls.lag, _run)
    checkpoint = method_of(calls.checkpoint, _run)
    pending = method_of(calls.pending, _run)
    seek = method_of(calls.seek, _run)
    pause = method_of(calls.pause, _run)
    resume = method_of(calls.resume, _run)
    update = method_of(calls.update, _run)
    delete = method_of(calls.delete, _run)
