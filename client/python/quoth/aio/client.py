"""The client of a broker for an event loop, with the calls of `quoth.Client`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Self, TypeVar
from weakref import finalize

from quoth.aio.groups.cursor import NamedCursor
from quoth.aio.groups.group import ConsumerGroup
from quoth.aio.groups.subscription import SubscriptionRun
from quoth.aio.io_thread import IOThread
from quoth.aio.iterators import Batches, Tail
from quoth.aio.producer import Producer
from quoth.aio.reading import Reading
from quoth.aio.requests import CallDriver, LoopMultiplexer
from quoth.aio.transaction import Transaction
from quoth.batch import Messages
from quoth.client import DEFAULT_TIMEOUT_S, DEFAULT_URL, BrokerLike, address_of
from quoth.connection.connection import Context
from quoth.connection.endpoint import Endpoint, GivenKey
from quoth.core import calls, streams
from quoth.core.calls import ClientState, coroutine_of, method_of
from quoth.core.idempotence import Publishing, Sequences
from quoth.core.paging import ReadAhead, ReadOptions
from quoth.core.request_state import ClientCall
from quoth.core.staging import TransactionName
from quoth.core.streams import ProducerOptions
from quoth.core.tailing import TailState
from quoth.groups import openings
from quoth.groups.options import GroupOptions, SubscriptionOptions
from quoth.groups.subscription import Subscription, SubscriptionCounts
from quoth.merging.multi_reader import MultiReader
from quoth.message import Ack
from quoth.reader import BatchCursor
from quothwire.errors import Disconnected, QuothError, error

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., object])

PUBLISHES_MAX = 256
"""Publishes of one client in flight; more of them wait. A broker remembers 1,000 producers of a topic."""


def connect(
    broker: str | BrokerLike = DEFAULT_URL,
    *,
    key: GivenKey = None,
    timeout: float = DEFAULT_TIMEOUT_S,
    wait: float | None = None,
) -> Connecting:
    """Connect to a broker and check that it answers: see `quoth.connect`.

    Either `client = await connect(...)`, or `async with connect(...) as client`, which closes it.
    """
    url, context = address_of(broker)
    return Connecting(partial(Client, url, context, timeout, key=key), wait)


class Connecting:
    """The result of `connect`: await it for a client, or enter it."""

    def __init__(self, new_client: Callable[[], Client], wait: float | None) -> None:
        self._new_client = new_client
        self._wait = wait
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> Client:
        client = self._new_client()
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


class Client(ClientState):
    """A client of a broker for one event loop, made by `connect`. Close it, or use it as a context manager.

    The methods are those of `quoth.Client`, with the same arguments, results and errors. Any number of tasks
    of its loop may call them; one I/O thread serves all of them.

    A cancelled call is given up: a publish was stored once or not at all, and publishing again is another
    publish. An iterator may be awaited again and continues.
    """

    def __init__(self, url: str, context: Context | None, timeout: float, *, key: GivenKey = None) -> None:
        super().__init__(url, timeout)
        self._io_thread = IOThread(context, Endpoint(url, key), self._timing)
        finalize(self, self._io_thread.stop)
        self._sequence_pool = SequencePool()
        self._ahead = ReadAhead(self._io_thread.drop)
        self._subscriptions: list[Subscription] = []
        self._running: SubscriptionRun | None = None

    def __repr__(self) -> str:
        closed = ", closed" if self._io_thread.is_stopping else ""
        return f"<quoth.aio.Client {self.url}, timeout={self.timeout}{closed}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Calls that are under way end with `Disconnected` ``closed``."""
        self._ahead.clear()
        self._io_thread.stop()
        await self._io_thread.ended()

    async def run(self) -> list[SubscriptionCounts]:
        """Execute the handlers of all subscriptions until SIGINT, SIGTERM or `stop`: see `quoth.Client.run`.

        A cancelled call cancels the handlers, whose records are given back.
        """
        if self._running is not None:
            raise error("bad_request", "the handlers of this client are executed already", "`stop` ends that")
        self._running = SubscriptionRun(self._subscriptions, self._group)
        try:
            return await self._running.execute()
        finally:
            self._running = None

    def stop(self) -> None:
        """End `run`. Does nothing while it is not executed."""
        if self._running is not None:
            self._running.stop()

    async def _run(self, call: ClientCall[T]) -> T:
        driver = CallDriver(self._io_thread, call)
        try:
            return await driver.result()
        finally:
            driver.drop()

    async def _change(self, call: ClientCall[T]) -> T:
        try:
            return await self._run(call)
        finally:
            self._ahead.clear()

    async def _read(self, options: ReadOptions) -> Messages:
        self._io_thread.check()
        with self._ahead.reader_of(options) as reader:
            driver = CallDriver(self._io_thread, reader.read(options, self.timeout), reader.place)
            try:
                if driver.is_done:
                    await asyncio.sleep(0)  # other tasks, timeouts and cancellations get their turn
                found = await driver.result()
            finally:
                driver.drop()
            if (ahead := reader.send_ahead()) is not None:
                reader.place = self._io_thread.ask(ahead)
            elif not reader.is_ahead:
                reader.place = None
        return found

    async def _publish(self, given: Publishing) -> Ack:
        sequences = await self._sequence_pool.take(given.deadline)
        reusable = None
        try:
            ack = await self._run(sequences.publish(given))
            reusable = sequences
        except QuothError as problem:
            if not isinstance(problem, Disconnected):
                reusable = sequences
            raise
        finally:
            self._sequence_pool.give_back(reusable)
        return ack

    def _producer(self, options: ProducerOptions) -> Producer:
        self._io_thread.check()
        return Producer(self, self._io_thread, options)

    def _transaction(self, name: TransactionName) -> Transaction:
        self._io_thread.check()
        return Transaction(self, name)

    def _batches(self, reader: BatchCursor[T]) -> Batches[T]:
        self._io_thread.check()
        return Batches(self, self._io_thread, reader)

    def _tail(self, state: TailState) -> Tail:
        try:
            self._io_thread.check()
        except QuothError:
            state.close()
            raise
        return Tail(self, self._io_thread, state)

    def _group(self, options: GroupOptions) -> ConsumerGroup:
        self._io_thread.check()
        return ConsumerGroup(self, self._io_thread, options)

    def _cursor(self, options: GroupOptions) -> NamedCursor:
        self._io_thread.check()
        return NamedCursor(self, options)

    def _subscribe(self, options: SubscriptionOptions) -> Callable[[H], H]:
        def register(handler: H) -> H:
            self._subscriptions.append(Subscription(options, handler, may_wait=True))
            return handler

        return register

    def _reading(self, reader: MultiReader) -> Reading:
        self._io_thread.check()
        return Reading(self, self._io_thread, reader)

    get = coroutine_of(calls.get, _run)
    advance = coroutine_of(calls.advance, _run)
    split = coroutine_of(calls.split, _run)
    count = coroutine_of(calls.count, _run)
    topics = coroutine_of(calls.topics, _run)
    topic = coroutine_of(calls.topic, _run)
    create_topic = coroutine_of(calls.create_topic, _run)
    update_topic = coroutine_of(calls.update_topic, _change)
    delete_topic = coroutine_of(calls.delete_topic, _change)
    trim = coroutine_of(calls.trim, _change)
    roll = coroutine_of(calls.roll, _run)
    hello = coroutine_of(calls.hello, _run)
    status = coroutine_of(calls.status, _run)
    metrics = coroutine_of(calls.metrics, _run)
    ping = coroutine_of(calls.ping, _run)

    read = coroutine_of(streams.read, _read, "Messages")
    publish = coroutine_of(streams.publish, _publish, "Ack")
    producer = method_of(streams.producer, _producer, "Producer")
    transaction = method_of(streams.transaction, _transaction, "Transaction")
    batches = method_of(streams.batches, _batches, "Batches[Batch]")
    stored = method_of(streams.stored, _batches, "Batches[StoredBatch]")
    tail = method_of(streams.tail, _tail, "Tail")
    read_many = method_of(streams.read_many, _reading, "Reading")
    tail_many = method_of(streams.tail_many, _reading, "Reading")

    group = method_of(openings.group, _group, "ConsumerGroup")
    cursor = method_of(openings.cursor, _cursor, "NamedCursor")
    subscribe = method_of(openings.subscribe, _subscribe, "Callable[[H], H]")
    groups = coroutine_of(openings.groups, _run)

    def _requests(self) -> LoopMultiplexer:
        self._io_thread.check()
        return LoopMultiplexer(self._io_thread)
