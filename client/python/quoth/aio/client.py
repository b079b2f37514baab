"""The client of a broker for an event loop, with the calls of `quoth.Client`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar
from weakref import finalize

from quoth.aio.call_driver import CallDriver
from quoth.aio.io_thread import IOThread
from quoth.aio.iterators import Batches, Tail
from quoth.aio.producer import Producer
from quoth.aio.reading import Reading
from quoth.aio.request_mux import LoopMultiplexer
from quoth.aio.transaction import Transaction
from quoth.batch import Batch, StoredBatch
from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL, BrokerLike, address_of
from quoth.columns import encoder
from quoth.connection.connection import Context
from quoth.core import calls
from quoth.core.calls import ClientState, executed_by
from quoth.core.closeable import AsyncCloseable
from quoth.core.deadline import as_seconds, deadline_in
from quoth.core.idempotence import Sequences
from quoth.core.request_state import ClientCall
from quoth.core.staging import TransactionName
from quoth.core.tailing import CursorFile, TailState
from quoth.cursor import Cursor
from quoth.merging.multi_reader import ReadPlan
from quoth.message import Ack, OnGap
from quoth.producer import BUFFER_MAX, ProducerOptions
from quoth.reader import reader_from
from quoth.timestamps import Start, Timestamp, last_before
from quothwire.errors import Disconnected, QuothError, error
from quothwire.protocol.messages import Publish
from quothwire.topic import check_topic

T = TypeVar("T")
P = ParamSpec("P")

PUBLISHES_MAX = 256
"""Publishes of one client in flight; more of them wait. A broker remembers 1,000 producers of a topic."""


def connect(
    broker: str | BrokerLike = DEFAULT_URL, *, timeout: float = DEFAULT_TIMEOUT_S, wait: float | None = None
) -> Connecting:
    """Connect to a broker and check that it answers: see `quoth.connect`.

    Either `client = await connect(...)`, or `async with connect(...) as client`, which closes it.
    """
    url, context = address_of(broker)
    return Connecting(url, context, timeout, wait)


class Connecting:
    """The result of `connect`: await it for a client, or enter it."""

    def __init__(self, url: str, context: Context | None, timeout: float, wait: float | None) -> None:
        self._broker = url, context, timeout
        self._wait = wait
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> Client:
        client = Client(*self._broker)
        try:
            await client._run(calls.begin(client, self._wait))
        except Exception:  # a cancelled one ends with the last reference to it
            await client.close()
            raise
        return client


class SequencePool:
    """The producer ids of publishes that run at once: each has its own, so that its retries are recognised.

    Idle ones, last used first. Their number grows with that of the publishes that run at once.
    """

    def __init__(self) -> None:
        self._idle: list[Sequences] = []
        self._places = asyncio.Semaphore(PUBLISHES_MAX)

    async def take(self, deadline: float) -> Sequences:
        """Return sequences for one publish. Raises `Disconnected` ``timed_out`` at the deadline."""
        if self._places.locked():
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._places.acquire()
            except TimeoutError:
                text = f"{PUBLISHES_MAX} other publishes of this client are on their way"
                raise error("timed_out", text, "nothing of it was stored") from None
        else:
            await self._places.acquire()
        return self._idle.pop() if self._idle else Sequences()

    def give_back(self, sequences: Sequences | None) -> None:
        """End a publish. sequences: None if its outcome, and so the next sequence, is not known."""
        if sequences is not None:
            self._idle.append(sequences)
        self._places.release()


def _awaited(
    call: Callable[Concatenate[ClientState, P], ClientCall[T]],
) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that executes a call."""

    async def method(client: Client, /, *values: P.args, **named: P.kwargs) -> T:
        return await client._run(call(client, *values, **named))

    return executed_by(method, call, __name__)


class Client(ClientState, AsyncCloseable):
    """A client of a broker for one event loop, made by `connect`. Close it, or use it as a context manager.

    The methods are those of `quoth.Client`, with the same arguments, results and errors. Any number of tasks
    of its loop may call them; one I/O thread serves all of them.

    A cancelled call is given up: a publish was stored once or not at all, and publishing again is another
    publish. An iterator may be awaited again and continues.
    """

    def __init__(self, url: str, context: Context | None, timeout: float) -> None:
        super().__init__(url, timeout)
        self._io_thread = IOThread(context, url, self._timing)
        finalize(self, self._io_thread.stop)
        self._sequence_pool = SequencePool()

    def __repr__(self) -> str:
        closed = ", closed" if self._io_thread.is_stopping else ""
        return f"<quoth.aio.Client {self.url}, timeout={self.timeout}{closed}>"

    async def close(self) -> None:
        """Close the connections. Calls that are under way end with `Disconnected` ``closed``."""
        self._io_thread.stop()
        await self._io_thread.ended()

    read = _awaited(calls.read)
    get = _awaited(calls.get)
    advance = _awaited(calls.advance)
    split = _awaited(calls.split)
    count = _awaited(calls.count)
    topics = _awaited(calls.topics)
    topic = _awaited(calls.topic)
    create_topic = _awaited(calls.create_topic)
    update_topic = _awaited(calls.update_topic)
    delete_topic = _awaited(calls.delete_topic)
    trim = _awaited(calls.trim)
    roll = _awaited(calls.roll)
    hello = _awaited(calls.hello)
    status = _awaited(calls.status)
    ping = _awaited(calls.ping)

    # -- writing ----------------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: bytes | Sequence[bytes],
        *,
        key: bytes | Sequence[bytes | None] | None = None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None = None,
        durability: Literal["written", "synced"] | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Publish one value, or several as one batch: see `quoth.Client.publish`.

        The publishes of one task keep their order; tasks do not wait for each other. A cancelled publish is
        not sent again: it was stored once, or not at all.
        """
        encode = encoder(value, key, headers, self._payload_bytes_max)
        deadline = deadline_in(self.timeout if timeout is None else timeout)
        sequences = await self._sequence_pool.take(deadline)
        reusable = None
        try:
            ack = await self._run(sequences.publish(Publish(durability or ""), topic, encode, deadline))
            reusable = sequences
        except QuothError as problem:
            if not isinstance(problem, Disconnected):
                reusable = sequences
            raise
        finally:
            self._sequence_pool.give_back(reusable)
        return ack

    def producer(
        self,
        topic: str,
        *,
        batch: int = 1_000,
        linger: float = 0.005,
        max_buffer: int = BUFFER_MAX,
        on_full: Literal["block", "raise"] = "block",
        durability: Literal["written", "synced"] | None = None,
        timeout: float = 120.0,
    ) -> Producer:
        """Return a producer, which has a thread of its own: see `quoth.Client.producer`."""
        self._io_thread.check()
        options = ProducerOptions(
            batch, linger, max_buffer, on_full, durability, timeout, self._payload_bytes_max
        )
        return Producer(self, self._io_thread, check_topic(topic), options)

    def transaction(self, topic: str, application: str, version: int) -> Transaction:
        """Return a transaction: see `quoth.Client.transaction`."""
        self._io_thread.check()
        return Transaction(self, TransactionName(topic, application, version).checked())

    # -- reading ----------------------------------------------------------------------------------------

    def batches(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        on_gap: OnGap | None = None,
    ) -> Batches[Batch]:
        """Iterate over the batches that are there now, oldest first: see `quoth.Client.batches`."""
        self._io_thread.check()
        reader = reader_from(topic, after, since, on_gap, last_before(until))
        return Batches(self, self._io_thread, reader)

    def stored(
        self,
        topic: str,
        *,
        after: int = 0,
        until: int | None = None,
        wait: float = 0.0,
        on_gap: OnGap | None = None,
    ) -> Batches[StoredBatch]:
        """Iterate over the batches of a range as they are stored: see `quoth.Client.stored`."""
        self._io_thread.check()
        reader = calls.stored(topic, after, until, on_gap)
        return Batches(self, self._io_thread, reader, as_seconds(wait, "wait"))

    # -- following --------------------------------------------------------------------------------------

    def tail(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Timestamp | None = None,
        cursor: CursorFile | None = None,
        on_gap: OnGap | None = None,
    ) -> Tail:
        """Iterate over records as they come, for ever: see `quoth.Client.tail`.

        By default it begins at about now, or exactly when `await client.tail(...)` returns it. cursor: each
        save blocks the loop until the disk has written it.
        """
        self._io_thread.check()
        return Tail(self, self._io_thread, TailState(topic, after, since, cursor, on_gap, self._timing))

    def read_many(
        self,
        topics: str | Iterable[str],
        *,
        after: Start | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        cursor: Cursor | None = None,
        ordered: bool = False,
        on_gap: OnGap | None = None,
    ) -> Reading:
        """Read the records of several topics that are there now: see `quoth.Client.read_many`."""
        self._io_thread.check()
        plan = ReadPlan.of(after, since, cursor, ordered=ordered, follow=False, until=until)
        return Reading(self, self._io_thread, topics, plan, on_gap)

    def tail_many(
        self,
        topics: str | Iterable[str],
        *,
        after: Start | None = None,
        since: Timestamp | None = None,
        cursor: Cursor | None = None,
        ordered: bool = False,
        on_gap: OnGap | None = None,
    ) -> Reading:
        """Follow several topics for ever: see `quoth.Client.tail_many`.

        By default it begins at about now, with patterns when it is first awaited; exactly when `await
        client.tail_many(...)` returns it, or `async with` enters it. cursor: a `quoth.Cursor`, whose `save`
        blocks the loop until the disk has written it; `await asyncio.to_thread(cursor.save)` does not.
        """
        self._io_thread.check()
        plan = ReadPlan.of(after, since, cursor, ordered=ordered, follow=True)
        return Reading(self, self._io_thread, topics, plan, on_gap)

    def _requests(self) -> LoopMultiplexer:
        self._io_thread.check()
        return LoopMultiplexer(self._io_thread)

    async def _run(self, call: ClientCall[T]) -> T:
        driver = CallDriver(self._io_thread, call)
        try:
            return await driver.result()
        finally:
            driver.drop()
