"""The client of a broker for an event loop, with the calls of `quoth.Client`."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack
from weakref import finalize

from quoth.aio.call_driver import CallDriver
from quoth.aio.io_thread import IOThread
from quoth.aio.iterators import Batches, Tail
from quoth.aio.producer import Producer
from quoth.aio.reading import Reading
from quoth.aio.request_mux import LoopMultiplexer
from quoth.aio.sequence_pool import SequencePool
from quoth.aio.transaction import Transaction
from quoth.batch import Batch, Messages, StoredBatch
from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL, BrokerLike, address_of
from quoth.columns import encoder
from quoth.connection.connection import Context
from quoth.core import calls
from quoth.core.closeable import AsyncCloseable
from quoth.core.deadline import as_seconds, deadline_in
from quoth.core.request_state import ClientCall
from quoth.core.staging import TransactionName
from quoth.core.tailing import CursorFile, TailState
from quoth.core.timing import Timing
from quoth.cursor import Cursor
from quoth.merging.multi_reader import ReadPlan
from quoth.message import Ack, Message, OnGap, PointerRange
from quoth.producer import BUFFER_MAX, ProducerOptions
from quoth.reader import reader_from
from quoth.timestamps import Start, Timestamp, as_pointer, last_before
from quothwire import batch as wire
from quothwire.errors import Disconnected, QuothError
from quothwire.protocol.messages import (
    Advance,
    Count,
    DescribeTopic,
    Ping,
    Pong,
    Publish,
    RollTopic,
    Status,
    TopicInfo,
    Trimmed,
    TrimTopic,
    UpdateTopic,
    Welcome,
)
from quothwire.settings import GivenSettings, as_sent
from quothwire.topic import check_topic

T = TypeVar("T")


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
            await client._greet(self._wait)
        except Exception:  # a cancelled one ends with the last reference to it
            await client.close()
            raise
        return client


class Client(AsyncCloseable):
    """A client of a broker for one event loop, made by `connect`. Close it, or use it as a context manager.

    The methods are those of `quoth.Client`, with the same arguments, results and errors. Any number of tasks
    of its loop may call them; one I/O thread serves all of them.

    A cancelled call is given up: a publish was stored once or not at all, and publishing again is another
    publish. An iterator may be awaited again and continues.
    """

    def __init__(self, url: str, context: Context | None, timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._timing = Timing()
        self._io_thread = IOThread(context, url, self._timing)
        finalize(self, self._io_thread.stop)
        self._sequence_pool = SequencePool()
        self._payload_bytes_max = wire.BATCH_BYTES_MAX

    def __repr__(self) -> str:
        closed = ", closed" if self._io_thread.is_stopping else ""
        return f"<quoth.aio.Client {self.url}, timeout={self.timeout}{closed}>"

    async def close(self) -> None:
        """Close the connections. Calls that are under way end with `Disconnected` ``closed``."""
        self._io_thread.stop()
        await self._io_thread.ended()

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

    async def read(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        limit: int = 1_000,
        timeout: float | None = None,
        on_gap: OnGap | None = None,
    ) -> Messages:
        """Read the records that are there now, oldest first: see `quoth.Client.read`."""
        reader = reader_from(topic, after, since, on_gap)
        end = last_before(until)
        return await self._run(calls.read(reader, end, limit, timeout or 0.0, self.timeout))

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

    # -- ranges -----------------------------------------------------------------------------------------

    async def advance(
        self, topic: str, after: int = 0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Advance:
        """Find out how far the next records above a pointer reach: see `quoth.Client.advance`."""
        return await self._run(calls.advance(topic, after, max_records, max_bytes, self.timeout))

    async def split(self, topic: str, after: int, until: int, parts: int) -> list[PointerRange]:
        """Divide a range into at most so many parts: see `quoth.Client.split`."""
        return await self._run(calls.split(topic, after, until, parts, self.timeout))

    async def count(self, topic: str, after: int = 0, until: int | None = None) -> Count:
        """Count the records and bytes of a range: see `quoth.Client.count`."""
        return await self._run(calls.count(topic, after, until, self.timeout))

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
        plan = ReadPlan.of_read(after, since, until, cursor, ordered)
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
        plan = ReadPlan.of_tail(after, since, cursor, ordered)
        return Reading(self, self._io_thread, topics, plan, on_gap)

    async def get(self, topic: str, pointer: int) -> Message:
        """Read the record with exactly this pointer: see `quoth.Client.get`."""
        return await self._run(calls.get(topic, pointer, self.timeout))

    # -- topics -----------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """Return the names of all topics, in the order of their UTF-8 bytes."""
        return await self._run(calls.topics(self.timeout))

    async def topic(self, topic: str) -> TopicInfo:
        """Describe one topic: see `quoth.Client.topic`."""
        return await self._run(calls.info(DescribeTopic(), topic, self.timeout))

    async def create_topic(self, topic: str, **settings: Unpack[GivenSettings]) -> TopicInfo:
        """Create a topic: see `quoth.Client.create_topic`."""
        return await self._run(calls.create_topic(topic, as_sent(settings), self.timeout))

    async def update_topic(self, topic: str, **settings: Unpack[GivenSettings]) -> TopicInfo:
        """Change settings of a topic: see `quoth.Client.update_topic`."""
        return await self._run(calls.info(UpdateTopic(as_sent(settings)), topic, self.timeout))

    async def delete_topic(self, topic: str) -> Trimmed:
        """Delete a topic and its records: see `quoth.Client.delete_topic`."""
        return await self._run(calls.delete_topic(topic, self.timeout))

    async def trim(self, topic: str, before: Timestamp) -> Trimmed:
        """Remove the segments that hold only records before a pointer or a time."""
        request = TrimTopic(as_pointer(before))
        return await self._run(calls.ask(Trimmed, request, check_topic(topic), timeout=self.timeout))

    async def roll(self, topic: str) -> TopicInfo:
        """Seal the topic's active segment."""
        return await self._run(calls.info(RollTopic(), topic, self.timeout))

    # -- the broker -------------------------------------------------------------------------------------

    async def hello(self) -> Welcome:
        """Return the broker's version and limits: see `quoth.Client.hello`."""
        return await self._greet()

    async def status(self) -> Status:
        """Return the status of the broker: see `quoth.Client.status`."""
        return await self._run(calls.status(self.timeout))

    async def ping(self) -> float:
        """Return the seconds that a round trip takes, including the way through the event loop."""
        began = time.perf_counter()
        await self._run(calls.ask(Pong, Ping(), timeout=self.timeout))
        return time.perf_counter() - began

    async def _greet(self, wait: float | None = None) -> Welcome:
        welcome = await self._run(calls.greet(self.timeout, wait))
        self._payload_bytes_max = calls.payload_bytes_max(welcome)
        return welcome

    def _requests(self) -> LoopMultiplexer:
        self._io_thread.check()
        return LoopMultiplexer(self._io_thread)

    async def _run(self, call: ClientCall[T]) -> T:
        driver = CallDriver(self._io_thread, call)
        try:
            return await driver.result()
        finally:
            driver.drop()
