"""The client of a broker: publish, read, follow, topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from quoth.batch import Messages, flattened
from quoth.connection.connection import Context, Link
from quoth.connection.endpoint import Endpoint, GivenKey
from quoth.connection.pool import Pool, Slot
from quoth.core import calls, streams
from quoth.core.calls import ClientState, method_of
from quoth.core.options import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
from quoth.core.options import DEFAULT_URL as DEFAULT_URL
from quoth.core.paging import ReadAhead, ReadOptions
from quoth.core.request_state import ClientCall
from quoth.groups import openings
from quoth.message import Ack, Message
from quoth.reader import BatchCursor
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error

if TYPE_CHECKING:
    from quoth.connection.channel import Channel
    from quoth.core.idempotence import Publishing
    from quoth.core.staging import TransactionName
    from quoth.core.streams import ProducerOptions
    from quoth.core.tailing import TailState
    from quoth.groups.cursor import NamedCursor
    from quoth.groups.group import ConsumerGroup
    from quoth.groups.options import GroupOptions, SubscriptionOptions
    from quoth.groups.subscription import Subscription, SubscriptionCounts, SubscriptionRun
    from quoth.merging.multi_reader import MultiReader
    from quoth.producer import Producer
    from quoth.reading import Reading
    from quoth.transaction import Transaction


T = TypeVar("T")
H = TypeVar("H", bound="Callable[..., object]")


class BrokerLike(Protocol):
    """A broker inside this process."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def context(self) -> Context:
        """The ZeroMQ context of its inproc address."""


def connect(
    broker: str | BrokerLike = DEFAULT_URL,
    *,
    key: GivenKey = None,
    timeout: float = DEFAULT_TIMEOUT_S,
    wait: float | None = None,
) -> Client:
    """Connect to a broker and check that it answers.

    broker: a URL (tcp://HOST:PORT, ipc://PATH) or a `quothd.Broker` of this process. key: the path of the
    client's key file, or a `quoth.Key`; None for a broker without keys. A broker of this process needs none.
    timeout: seconds that any call may take by default. wait: seconds to wait for a broker that is not there
    yet; None for the timeout.

    Raises `Disconnected` if no broker answers within that time, `AuthError` ``auth_failed`` at once if it
    refuses the key, or wants one, `RequestError` ``bad_setting`` for a key file that cannot be used, and
    ``bad_request`` for an address that can only be reached through the `Broker` itself.
    """
    url, context = address_of(broker)
    client = Client(url, context, timeout, key=key)
    try:
        client._run(calls.begin(client, wait))
    except BaseException:
        client.close()
        raise
    return client


def address_of(broker: str | BrokerLike) -> tuple[str, Context | None]:
    """Return the URL of a broker, and the context of one inside this process. Raises as `connect` does."""
    if not isinstance(broker, str):
        return broker.url, broker.context
    if broker.startswith("inproc:"):
        raise error("bad_request", f"{broker} is inside a process", "connect to the Broker, not to its url")
    return broker, None


class Client(ClientState, Closeable):
    """A client of a broker, made by `connect`. Close it, or use it as a context manager.

    Any thread may call any method: each call takes a connection of its own from a pool. An iterator, a
    producer and their results belong to one thread at a time. A forked child may go on using a client over
    tcp or ipc and gets its own connections; iterators and producers stay with the parent.

    It reconnects by itself. The outcome of a call that fails with `Disconnected` or `BrokerFailure` is not
    known; after every other error nothing was stored or changed. If the broker closes the connection while a
    call waits, and then refuses the key, the text of the `AuthError` says that its outcome is not known.
    Later calls try again: keys may change without a restart of the broker.
    """

    def __init__(self, url: str, context: Context | None, timeout: float, *, key: GivenKey = None) -> None:
        super().__init__(url, timeout)
        self._pool = Pool(Endpoint(url, key), context, self._timing)
        self._ahead = ReadAhead(self._pool.release)
        self._subscriptions: list[Subscription] = []
        self._running: SubscriptionRun | None = None

    def __repr__(self) -> str:
        closed = ", closed" if self._pool.is_closed else ""
        return f"<quoth.Client {self.url}, timeout={self.timeout}{closed}>"

    def close(self) -> None:
        """Close the connections. Does nothing the second time."""
        self._ahead.clear()
        self._pool.close()

    def run(self) -> list[SubscriptionCounts]:
        """Execute the handlers of all subscriptions until SIGINT, SIGTERM or `stop`.

        Then no more records are taken, the handlers that are executed finish, and their records are
        acknowledged; what was fetched beside them is given back. Returns the counts of each subscription. A
        second signal has its usual effect. Signals are heard in the main thread alone. Raises the error that
        has ended a subscription, once the others are finished.
        """
        from quoth.groups.subscription import SubscriptionRun

        if self._running is not None:
            raise error("bad_request", "the handlers of this client are executed already", "`stop` ends that")
        self._running = SubscriptionRun(self._subscriptions, self._group)
        try:
            return self._running.execute()
        finally:
            self._running = None

    def stop(self) -> None:
        """End `run`, from any thread. Does nothing while it is not executed."""
        running = self._running
        if running is not None:
            running.stop()

    def _run(self, call: ClientCall[T]) -> T:
        with self._pool.channel() as channel:
            return channel.run(call)

    def _change(self, call: ClientCall[T]) -> T:
        try:
            return self._run(call)
        finally:
            self._ahead.clear()

    def _read(self, options: ReadOptions) -> Messages:
        with self._ahead.reader_of(options) as reader:
            if reader.goes_on and reader.place is None:
                reader.place = Slot()
            with self._pool.channel(reader.place) as channel:
                found = channel.run(reader.read(options, self.timeout))
                if (ahead := reader.send_ahead()) is not None:
                    channel.ask(ahead)
        return found

    def _publish(self, given: Publishing) -> Ack:
        with self._pool.channel() as channel:
            return channel.run(channel.sequences.publish(given))

    def _producer(self, options: ProducerOptions) -> Producer:
        from quoth.producer import Producer

        return Producer(self._pool.context, self._pool.endpoint, options, self._timing)

    def _transaction(self, name: TransactionName) -> Transaction:
        from quoth.transaction import Transaction

        return Transaction(self, name)

    def _group(self, options: GroupOptions) -> ConsumerGroup:
        from quoth.groups.group import ConsumerGroup

        return ConsumerGroup(self, self._pool, options)

    def _cursor(self, options: GroupOptions) -> NamedCursor:
        from quoth.groups.cursor import NamedCursor

        return NamedCursor(self, options)

    def _subscribe(self, options: SubscriptionOptions) -> Callable[[H], H]:
        from quoth.groups.subscription import Subscription

        def register(handler: H) -> H:
            self._subscriptions.append(Subscription(options, handler))
            return handler

        return register

    def _reading(self, reader: MultiReader) -> Reading:
        from quoth.reading import Reading

        return Reading(self._pool, reader)

    def _iterate(self, reader: BatchCursor[T]) -> Iterator[T]:
        with self._pool.slot() as slot:
            while not reader.is_done:
                fetching = reader.fetch_ahead(wait=reader.wait, timeout=self.timeout)
                yield from self._fetch(fetching, reader, slot)

    def _tail(self, tail: TailState) -> Iterator[Message]:
        try:
            if not tail.is_placed:
                self._run(tail.reader.find_end())
            tail.begin()
        except BaseException:
            tail.close()
            raise
        return flattened(self._follow(tail))

    get = method_of(calls.get, _run)
    advance = method_of(calls.advance, _run)
    split = method_of(calls.split, _run)
    count = method_of(calls.count, _run)
    topics = method_of(calls.topics, _run)
    topic = method_of(calls.topic, _run)
    create_topic = method_of(calls.create_topic, _run)
    update_topic = method_of(calls.update_topic, _change)
    delete_topic = method_of(calls.delete_topic, _change)
    trim = method_of(calls.trim, _change)
    roll = method_of(calls.roll, _run)
    hello = method_of(calls.hello, _run)
    status = method_of(calls.status, _run)
    metrics = method_of(calls.metrics, _run)
    ping = method_of(calls.ping, _run)

    publish = method_of(streams.publish, _publish, "Ack")
    producer = method_of(streams.producer, _producer, "Producer")
    transaction = method_of(streams.transaction, _transaction, "Transaction")
    read = method_of(streams.read, _read, "Messages")
    batches = method_of(streams.batches, _iterate, "Iterator[Batch]")
    stored = method_of(streams.stored, _iterate, "Iterator[StoredBatch]")
    tail = method_of(streams.tail, _tail, "Iterator[Message]")
    read_many = method_of(streams.read_many, _reading, "Reading")
    tail_many = method_of(streams.tail_many, _reading, "Reading")

    group = method_of(openings.group, _group, "ConsumerGroup")
    cursor = method_of(openings.cursor, _cursor, "NamedCursor")
    subscribe = method_of(openings.subscribe, _subscribe, "Callable[[H], H]")
    groups = method_of(openings.groups, _run)

    def _link(self, silence: float) -> Link:
        """Return a connection for many requests in flight, which the caller closes."""
        return Link(self._pool.context, self._pool.endpoint, silence)

    def _requests(self, *, once: bool = False) -> Channel:
        """Return a connection for requests that are answered in any order, which the caller closes.

        once: see `Link`.
        """
        from quoth.connection.channel import Channel

        return Channel(self._pool.context, self._pool.endpoint, self._timing, once=once)

    def _follow(self, tail: TailState) -> Generator[Iterable[Message], None, None]:
        """Yield the messages of one batch after the other."""
        reader = tail.reader
        with tail, self._pool.slot() as slot:
            while True:
                tail.save()
                try:
                    found = self._fetch(tail.follow(self.timeout), reader, slot)
                except QuothError as problem:
                    time.sleep(tail.pause_after(problem))
                    continue
                yield from map(tail.messages, found)

    def _fetch(self, fetching: ClientCall[Iterator[T]], reader: BatchCursor[T], slot: Slot) -> Iterator[T]:
        with self._pool.channel(slot) as channel:
            found = channel.run(fetching)
            if reader.prefetch is not None:
                channel.ask(reader.prefetch)
            return found
