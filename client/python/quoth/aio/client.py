"""The client for an event loop: everything that an application asks of a broker, as `quoth.Client` does."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack
from weakref import finalize

from quoth.aio.call_driver import CallDriver
from quoth.aio.io_thread import IOThread
from quoth.aio.iterators import Batches, Tail
from quoth.aio.producer import Producer
from quoth.aio.reading import Reading
from quoth.aio.sequence_pool import SequencePool
from quoth.aio.transaction import Transaction
from quoth.batch import Batch, Messages, StoredBatch
from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL, BrokerLike, address_of, beginning
from quoth.columns import encoder
from quoth.connection.connection import Context
from quoth.core import calls
from quoth.core.deadline import as_seconds, deadline_in
from quoth.core.multi_reader import ReadPlan, Start
from quoth.core.request_state import ClientCall
from quoth.core.staging import TransactionName
from quoth.core.tailing import CursorFile, TailState
from quoth.cursor import Cursor
from quoth.message import Ack, Message, OnGap, PointerRange
from quoth.producer import BUFFER_MAX, ProducerOptions
from quoth.reader import reader_from
from quoth.timestamps import Timestamp, as_pointer
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
    """A client to be: await it, or enter it."""

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
        except Exception:  # one that is cancelled ends with the last reference to it
            await client.close()
            raise
        return client


class Client:
    """A broker's client for one event loop, to be made by `connect`, closed or used as a context manager.

    The methods are those of `quoth.Client`, with the same arguments, results and errors. Any number of tasks
    of the loop it was made in may call them; one thread carries what all of them ask and what is answered.

    A call that is cancelled is given up: a publish was stored once or not at all, and to publish again is
    another publish. An iterator may be waited for again and goes on where it was.
    """

    def __init__(self, url: str, context: Context | None, timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._courier = IOThread(context, url)
        finalize(self, self._courier.stop)
        self._lanes = SequencePool()
        self._payload_bytes_max = wire.BATCH_BYTES_MAX

    def __repr__(self) -> str:
        closed = ", closed" if self._courier.is_stopping else ""
        return f"<quoth.aio.Client {self.url}, timeout={self.timeout}{closed}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls that are under way end with `Disconnected` ``closed``."""
        self._courier.stop()
        await self._courier.ended()

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

        Those of one task keep their order; tasks do not wait for each other. One that is cancelled is not
        sent again: it was stored once, or not at all.
        """
        encode = encoder(value, key, headers, self._payload_bytes_max)
        deadline = deadline_in(self.timeout if timeout is None else timeout)
        sequences = await self._lanes.take(deadline)
        reusable = None
        try:
            ack = await self._run(sequences.publish(Publish(durability or ""), topic, encode, deadline))
            reusable = sequences
        except QuothError as problem:
            if not isinstance(problem, Disconnected):
                reusable = sequences
            raise
        finally:
            self._lanes.give_back(reusable)
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
        """A producer that gathers records into batches and keeps several on their way.

        See `quoth.Client.producer`. It has a thread of its own.
        """
        self._courier.check()
        options = ProducerOptions(
            batch, linger, max_buffer, on_full, durability, timeout, self._payload_bytes_max
        )
        return Producer(self, self._courier, check_topic(topic), options)

    def transaction(self, topic: str, application: str, version: int) -> Transaction:
        """A transaction: see `quoth.Client.transaction`."""
        self._courier.check()
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
        """Records that are there now, oldest first: see `quoth.Client.read`."""
        reader = reader_from(topic, after, since, on_gap)
        end = calls.last_before(until)
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
        """Batches that are there now, oldest first: see `quoth.Client.batches`."""
        self._courier.check()
        reader = reader_from(topic, after, since, on_gap, calls.last_before(until))
        return Batches(self, self._courier, reader)

    def stored(
        self,
        topic: str,
        *,
        after: int = 0,
        until: int | None = None,
        wait: float = 0.0,
        on_gap: OnGap | None = None,
    ) -> Batches[StoredBatch]:
        """The batches above a pointer up to another one, as they are stored: see `quoth.Client.stored`."""
        self._courier.check()
        reader = calls.stored(topic, after, until, on_gap)
        return Batches(self, self._courier, reader, as_seconds(wait, "wait"))

    # -- ranges -----------------------------------------------------------------------------------------

    async def advance(
        self, topic: str, after: int = 0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Advance:
        """How far the next records above a pointer reach: see `quoth.Client.advance`."""
        return await self._run(calls.advance(topic, after, max_records, max_bytes, self.timeout))

    async def split(self, topic: str, after: int, until: int, parts: int) -> list[PointerRange]:
        """Divide a stretch into at most so many parts: see `quoth.Client.split`."""
        return await self._run(calls.split(topic, after, until, parts, self.timeout))

    async def count(self, topic: str, after: int = 0, until: int | None = None) -> Count:
        """How many records and bytes are kept of a stretch: see `quoth.Client.count`."""
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
        """Records as they come, for ever: see `quoth.Client.tail`.

        Without a beginning it begins at about now, or exactly when `await client.tail(...)` returns it.

        cursor: each time it is saved everything in the loop waits for the disk.
        """
        self._courier.check()
        return Tail(self, self._courier, TailState(topic, after, since, cursor, on_gap))

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
        """Records of several topics that are there now: see `quoth.Client.read_many`, and `tail_many`."""
        self._courier.check()
        begin, end = beginning(after, since, 0), calls.last_before(until)
        plan = ReadPlan(False, ordered, begin, end, cursor, is_time=since is not None)
        return Reading(self, self._courier, topics, plan, on_gap)

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
        """Records of several topics as they come, for ever: see `quoth.Client.tail_many`.

        Without a beginning it begins at about now, that of patterns when it is first waited for; exactly when
        `await client.tail_many(...)` returns it, or `async with` enters it.

        cursor: a `quoth.Cursor`. Its `save` waits for the disk, and everything in the loop with it; whoever
        minds lets the task that reads say `await asyncio.to_thread(cursor.save)`.
        """
        self._courier.check()
        begin = beginning(after, since, None)
        plan = ReadPlan(True, ordered, begin, cursor=cursor, is_time=since is not None)
        return Reading(self, self._courier, topics, plan, on_gap)

    async def get(self, topic: str, pointer: int) -> Message:
        """The record with exactly this pointer: see `quoth.Client.get`."""
        return await self._run(calls.get(topic, pointer, self.timeout))

    # -- topics -----------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """The names of all topics, in the order of their UTF-8 bytes."""
        return await self._run(calls.topics(self.timeout))

    async def topic(self, topic: str) -> TopicInfo:
        """Everything about one topic. Never wakes it."""
        return await self._run(calls.info(DescribeTopic(), topic, self.timeout))

    async def create_topic(self, topic: str, **settings: Unpack[GivenSettings]) -> TopicInfo:
        """Make a topic: see `quoth.Client.create_topic`."""
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
        """The broker's version, limits and where it announces."""
        return await self._greet()

    async def status(self) -> Status:
        """The broker as a whole, with the states of all topics. Wakes none."""
        return await self._run(calls.status(self.timeout))

    async def ping(self) -> float:
        """Seconds that a round trip takes, the way through the event loop included."""
        began = time.perf_counter()
        await self._run(calls.ask(Pong, Ping(), timeout=self.timeout))
        return time.perf_counter() - began

    async def _greet(self, wait: float | None = None) -> Welcome:
        welcome = await self._run(calls.greet(self.timeout, wait))
        self._payload_bytes_max = calls.payload_bytes_max(welcome)
        return welcome

    async def _run(self, call: ClientCall[T]) -> T:
        walk = CallDriver(self._courier, call)
        try:
            return await walk.end()
        finally:
            walk.drop()
