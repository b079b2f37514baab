"""The client of a broker: publish, read, follow, topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from quoth.batch import Batch, StoredBatch
from quoth.columns import encoder
from quoth.connection.connection import Context, Link
from quoth.connection.pool import Pool, Slot
from quoth.core import calls
from quoth.core.calls import ClientState, executed_by
from quoth.core.deadline import as_seconds, deadline_in
from quoth.core.defaults import BUFFER_MAX
from quoth.core.defaults import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
from quoth.core.defaults import DEFAULT_URL as DEFAULT_URL
from quoth.core.request_state import ClientCall
from quoth.message import Ack, Message, OnGap
from quoth.reader import BatchCursor, reader_from
from quoth.timestamps import Start, Timestamp, last_before
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import Publish
from quothwire.topic import check_topic

if TYPE_CHECKING:
    from quoth.connection.channel import Channel
    from quoth.core.tailing import CursorFile, TailState
    from quoth.cursor import Cursor
    from quoth.producer import Producer
    from quoth.reading import Reading
    from quoth.transaction import Transaction


T = TypeVar("T")
P = ParamSpec("P")


class BrokerLike(Protocol):
    """A broker inside this process."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def context(self) -> Context:
        """The ZeroMQ context of its inproc address."""


def connect(
    broker: str | BrokerLike = DEFAULT_URL, *, timeout: float = DEFAULT_TIMEOUT_S, wait: float | None = None
) -> Client:
    """Connect to a broker and check that it answers.

    broker: a URL (tcp://HOST:PORT, ipc://PATH) or a `quothd.Broker` of this process. timeout: seconds that
    any call may take by default. wait: seconds to wait for a broker that is not there yet; None for the
    timeout. Raises `Disconnected` if no broker answers within that time, or `RequestError` ``bad_request``
    for an address that can only be reached through the `Broker` itself.
    """
    url, context = address_of(broker)
    client = Client(url, context, timeout)
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


def _blocking(
    call: Callable[Concatenate[ClientState, P], ClientCall[T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return a method that executes a call and waits for its result."""

    def method(client: Client, /, *values: P.args, **named: P.kwargs) -> T:
        return client._run(call(client, *values, **named))

    return executed_by(method, call, __name__)


class Client(ClientState, Closeable):
    """A client of a broker, made by `connect`. Close it, or use it as a context manager.

    Any thread may call any method: each call takes a connection of its own from a pool. An iterator, a
    producer and their results belong to one thread at a time. A forked child may go on using a client over
    tcp or ipc and gets its own connections; iterators and producers stay with the parent.

    It reconnects by itself. The outcome of a call that fails with `Disconnected` or `BrokerFailure` is not
    known; after every other error nothing was stored or changed.
    """

    def __init__(self, url: str, context: Context | None, timeout: float) -> None:
        super().__init__(url, timeout)
        self._pool = Pool(url, context, self._timing)

    def __repr__(self) -> str:
        closed = ", closed" if self._pool.is_closed else ""
        return f"<quoth.Client {self.url}, timeout={self.timeout}{closed}>"

    def close(self) -> None:
        """Close the connections. Does nothing the second time."""
        self._pool.close()

    read = _blocking(calls.read)
    get = _blocking(calls.get)
    advance = _blocking(calls.advance)
    split = _blocking(calls.split)
    count = _blocking(calls.count)
    topics = _blocking(calls.topics)
    topic = _blocking(calls.topic)
    create_topic = _blocking(calls.create_topic)
    update_topic = _blocking(calls.update_topic)
    delete_topic = _blocking(calls.delete_topic)
    trim = _blocking(calls.trim)
    roll = _blocking(calls.roll)
    hello = _blocking(calls.hello)
    status = _blocking(calls.status)
    ping = _blocking(calls.ping)

    def _run(self, call: ClientCall[T]) -> T:
        with self._pool.channel() as channel:
            return channel.run(call)

    # -- writing ----------------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        value: bytes | Sequence[bytes],
        *,
        key: bytes | Sequence[bytes | None] | None = None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None = None,
        durability: Literal["written", "synced"] | None = None,
        timeout: float | None = None,
    ) -> Ack:
        """Publish one value, or several as one batch: all of them are stored, in order, or none.

        key, headers: one for all values, or a sequence with one for each. durability: the least level to
        reach before the call returns. A retry after a lost connection never stores anything twice. Raises
        `RequestError`, `NotFound`, `Conflict` or `Unavailable` if nothing was stored, `Disconnected` or
        `BrokerFailure` if that is not known.
        """
        encode = encoder(value, key, headers, self._payload_bytes_max)
        deadline = deadline_in(self.timeout if timeout is None else timeout)
        with self._pool.channel() as channel:
            return channel.run(channel.sequences.publish(Publish(durability or ""), topic, encode, deadline))

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
        """Return a producer, which collects records into batches and keeps several in flight.

        batch: the records of a full batch, which is sent at once. linger: seconds after which a smaller batch
        is sent. max_buffer: the most records that may wait; 64 MiB of them are a limit, too. on_full: `send`
        waits for room, or raises ``busy``. timeout: seconds after which a batch that is not delivered has
        failed.
        """
        from quoth.producer import Producer, ProducerOptions

        options = ProducerOptions(
            batch, linger, max_buffer, on_full, durability, timeout, self._payload_bytes_max
        )
        return Producer(self._pool.context, self.url, check_topic(topic), options, self._timing)

    def transaction(self, topic: str, application: str, version: int) -> Transaction:
        """Return a transaction: batches of many writers, which the topic gets all or none, once.

        application, version: its name. 1 to 200 bytes of UTF-8, beginning with ``~`` if the name is used only
        once; and a number that rises with every transaction of the application on this topic. Sends no
        request.
        """
        from quoth.core.staging import TransactionName
        from quoth.transaction import Transaction

        return Transaction(self, TransactionName(topic, application, version).checked())

    def _link(self, silence: float) -> Link:
        """Return a connection for many requests in flight, which the caller closes."""
        return Link(self._pool.context, self.url, silence)

    def _requests(self) -> Channel:
        """Return a connection for requests that are answered in any order, which the caller closes."""
        from quoth.connection.channel import Channel

        return Channel(self._pool.context, self.url, self._timing)

    # -- reading ----------------------------------------------------------------------------------------

    def batches(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        on_gap: OnGap | None = None,
    ) -> Iterator[Batch]:
        """Iterate over the batches that are there now, oldest first: the fast path for many records.

        Arguments as for `read`; the last batch may reach beyond `until`.
        """
        reader = reader_from(topic, after, since, on_gap, last_before(until))
        return self._iterate(reader, 0.0)

    def stored(
        self,
        topic: str,
        *,
        after: int = 0,
        until: int | None = None,
        wait: float = 0.0,
        on_gap: OnGap | None = None,
    ) -> Iterator[StoredBatch]:
        """Iterate over the batches above the pointer `after` up to `until`, inclusive, as they are stored.

        The first and the last one may reach beyond that. until: None for what is there now. wait: seconds to
        wait for more; it ends after so many seconds without any.
        """
        return self._iterate(calls.stored(topic, after, until, on_gap), as_seconds(wait, "wait"))

    # -- following --------------------------------------------------------------------------------------

    def tail(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Timestamp | None = None,
        cursor: CursorFile | None = None,
        on_gap: OnGap | None = None,
    ) -> Iterator[Message]:
        """Iterate over records as they come, for ever: from now on, or behind a cursor, or since a time.

        Waits for records, for a topic that does not exist yet, and for a broker that is not there, even in
        the beginning. Ends with `NotFound` when the topic is deleted.

        cursor: a `Cursor`, or the path of its file, that says where to begin, as for `tail_many`. A record is
        done when the next one is requested: then the cursor moves behind it. It is saved several times a
        second, and a file is closed with the iterator.
        """
        from quoth.core.tailing import TailState

        tail = TailState(topic, after, since, cursor, on_gap, self._timing)
        try:
            if not tail.is_placed:
                self._run(tail.reader.find_end())
            tail.begin()
        except BaseException:
            tail.close()
            raise
        return self._tail(tail)

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
        """Read the records of several topics that are there now: names, and patterns such as ``orders.*``.

        Arguments as for `read` and `tail_many`. Raises `NotFound` for a name that no topic has.
        """
        from quoth.merging.multi_reader import ReadPlan
        from quoth.reading import Reading

        plan = ReadPlan.of(after, since, cursor, ordered=ordered, follow=False, until=until)
        return Reading(self._pool, self.timeout, topics, plan, on_gap)

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
        """Follow several topics for ever, also new ones that match a pattern.

        cursor: says where to begin, whatever `after` and `since` say; a topic that it does not know is read
        from its beginning. A new cursor begins where `after` and `since` say. after: a cursor, or one for
        each topic; a topic that is not named is read from its beginning. ordered: in the order of time, each
        record as soon as no older one can come, see `Reading`.
        """
        from quoth.merging.multi_reader import ReadPlan
        from quoth.reading import Reading

        plan = ReadPlan.of(after, since, cursor, ordered=ordered, follow=True)
        return Reading(self._pool, self.timeout, topics, plan, on_gap)

    def _iterate(self, reader: BatchCursor[T], wait: float) -> Iterator[T]:
        with self._pool.slot() as slot:
            while not reader.is_done:
                fetching = reader.fetch_ahead(wait=wait, timeout=self.timeout)
                yield from self._fetch(fetching, reader, slot)
                if not reader.has_more:
                    return

    def _tail(self, tail: TailState) -> Iterator[Message]:
        reader = tail.reader
        with tail, self._pool.slot() as slot:
            while True:
                tail.save()
                try:
                    found = self._fetch(tail.follow(self.timeout), reader, slot)
                except QuothError as problem:
                    time.sleep(tail.pause_after(problem))
                    continue
                for one in found:
                    yield from tail.messages(one)

    def _fetch(self, fetching: ClientCall[Iterator[T]], reader: BatchCursor[T], slot: Slot) -> Iterator[T]:
        with self._pool.channel(slot) as channel:
            found = channel.run(fetching)
            if reader.prefetch is not None:
                channel.ask(reader.prefetch)
            return found
