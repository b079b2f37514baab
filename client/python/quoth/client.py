"""The client: everything that an application asks of a broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, Unpack

from quoth.batch import Batch, Messages, StoredBatch
from quoth.columns import encoder
from quoth.connection.connection import Context, Link
from quoth.connection.pool import Pool, Slot
from quoth.core import calls
from quoth.core.deadline import as_seconds, deadline_in
from quoth.core.defaults import BUFFER_MAX
from quoth.core.defaults import DEFAULT_TIMEOUT_S as DEFAULT_TIMEOUT_S
from quoth.core.defaults import DEFAULT_URL as DEFAULT_URL
from quoth.core.request_state import ClientCall
from quoth.message import Ack, Message, OnGap, PointerRange
from quoth.reader import BatchCursor, reader_from
from quoth.timestamps import Timestamp, as_pointer, cursor
from quothwire import batch as wire
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error
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

if TYPE_CHECKING:
    from quoth.core.multi_reader import Start
    from quoth.core.tailing import CursorFile, TailState
    from quoth.cursor import Cursor
    from quoth.producer import Producer
    from quoth.reading import Reading
    from quoth.transaction import Transaction


T = TypeVar("T")


class BrokerLike(Protocol):
    """What a broker inside this process offers."""

    @property
    def url(self) -> str:
        """Where it is."""

    @property
    def context(self) -> Context:
        """The ZeroMQ context that its inproc address lives in."""


def connect(
    broker: str | BrokerLike = DEFAULT_URL, *, timeout: float = DEFAULT_TIMEOUT_S, wait: float | None = None
) -> Client:
    """Connect to a broker and check that it answers.

    broker: a URL (tcp://HOST:PORT, ipc://PATH) or a `quothd.Broker` of this process. timeout: seconds that
    any call may take unless it says otherwise. wait: seconds to wait for a broker that is not there yet; None
    for the timeout. Raises `Disconnected` if no broker answers within that time, or `RequestError`
    ``bad_request`` for an address that can only be reached through the `Broker` itself.
    """
    url, context = address_of(broker)
    client = Client(url, context, timeout)
    try:
        client._greet(wait)
    except BaseException:
        client.close()
        raise
    return client


def address_of(broker: str | BrokerLike) -> tuple[str, Context | None]:
    """Where a broker is, and in which context if it is inside this process. Raises as `connect` does."""
    if not isinstance(broker, str):
        return broker.url, broker.context
    if broker.startswith("inproc:"):
        raise error("bad_request", f"{broker} is inside a process", "connect to the Broker, not to its url")
    return broker, None


class Client(Closeable):
    """A broker's client, to be made by `connect`, closed or used as a context manager.

    Any thread may call any method: each call takes a connection of its own from a pool. An iterator, a
    producer and what they return belong to one thread at a time. A forked child may go on using a client
    that speaks tcp or ipc and gets its own connections; iterators and producers stay with the parent.

    It reconnects by itself. A call that fails with `Disconnected` or `BrokerFailure` has an unknown outcome;
    with every other error nothing was stored or changed.
    """

    def __init__(self, url: str, context: Context | None, timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._pool = Pool(url, context)
        self._payload_bytes_max = wire.BATCH_BYTES_MAX

    def __repr__(self) -> str:
        closed = ", closed" if self._pool.is_closed else ""
        return f"<quoth.Client {self.url}, timeout={self.timeout}{closed}>"

    def close(self) -> None:
        """Close the connections. Does nothing the second time."""
        self._pool.close()

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

        key, headers: one for every value, or a sequence with one for each. durability: at least this level
        before the call returns. A retry after a lost connection never stores anything twice.
        Raises `RequestError`, `NotFound`, `Conflict` or `Unavailable` if nothing was stored, `Disconnected`
        or `BrokerFailure` if that is not known.
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
        """A producer that gathers records into batches and keeps several on their way.

        batch: records at which a batch leaves. linger: seconds after which a smaller one leaves.
        max_buffer: records that wait at most; 64 MiB of them are as many as can wait, too.
        on_full: `send` waits for room, or raises ``busy``.
        timeout: seconds after which a batch that could not be delivered counts as failed.
        """
        from quoth.producer import Producer, ProducerOptions

        options = ProducerOptions(
            batch, linger, max_buffer, on_full, durability, timeout, self._payload_bytes_max
        )
        return Producer(self._pool.context, self.url, check_topic(topic), options)

    def transaction(self, topic: str, application: str, version: int) -> Transaction:
        """A transaction: batches that many may write, which the topic gets all or none, once.

        application, version: its name. 1 to 200 bytes of UTF-8, beginning with ``~`` if it is used this once
        and never again; and a number that rises with every transaction of the application on this topic.
        Asks the broker nothing.
        """
        from quoth.core.staging import TransactionName
        from quoth.transaction import Transaction

        return Transaction(self, TransactionName(topic, application, version).checked())

    def _link(self, silence: float) -> Link:
        """A connection of its own, for whoever keeps many requests on their way. He closes it."""
        return Link(self._pool.context, self.url, silence)

    # -- reading ----------------------------------------------------------------------------------------

    def read(
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
        """Records that are there now, oldest first, in a sequence that makes each message as it is looked at.

        after: a cursor, exclusive. since, until: times; since is included, until is not. Without either
        it reads from the oldest record on. limit: records at most. timeout: seconds to wait for the first
        record. Raises `RequestError` ``bad_request`` for a limit below 0.
        """
        reader = reader_from(topic, after, since, on_gap)
        end = calls.last_before(until)
        return self._run(calls.read(reader, end, limit, timeout or 0.0, self.timeout))

    def batches(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        on_gap: OnGap | None = None,
    ) -> Iterator[Batch]:
        """Batches that are there now, oldest first: the fast path for many records.

        Arguments as for `read`; the last batch may reach beyond `until`.
        """
        reader = reader_from(topic, after, since, on_gap, calls.last_before(until))
        return self._passage(reader, 0.0)

    def stored(
        self,
        topic: str,
        *,
        after: int = 0,
        until: int | None = None,
        wait: float = 0.0,
        on_gap: OnGap | None = None,
    ) -> Iterator[StoredBatch]:
        """The batches above the pointer `after` up to `until`, which is included, as they are stored.

        The first and the last one may reach beyond that. until: None for what is there now. wait: seconds to
        wait for more where there is nothing yet; it ends after so many without any.
        """
        return self._passage(calls.stored(topic, after, until, on_gap), as_seconds(wait, "wait"))

    # -- ranges -----------------------------------------------------------------------------------------

    def advance(
        self, topic: str, after: int = 0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Advance:
        """How far the next records above a pointer reach: as many as asked for, or what there is.

        max_bytes: of whole batches, as they are stored; one at least.
        """
        return self._run(calls.advance(topic, after, max_records, max_bytes, self.timeout))

    def split(self, topic: str, after: int, until: int, parts: int) -> list[PointerRange]:
        """Divide what is kept above `after` up to `until` into at most so many parts, between batches.

        None is empty; none holds more than twice its share of the records, unless it is one batch.
        """
        return self._run(calls.split(topic, after, until, parts, self.timeout))

    def count(self, topic: str, after: int = 0, until: int | None = None) -> Count:
        """How many records and bytes are kept above `after` up to `until`, which is included, without
        reading them. until: None for what is there now."""
        return self._run(calls.count(topic, after, until, self.timeout))

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
        """Records as they come, for ever: from now on, or behind a cursor, or since a time.

        It waits in silence, also for a topic that does not exist yet and for a broker that is away, even in
        the beginning. It ends with `NotFound` when the topic is deleted.

        cursor: a `Cursor`, or the file that keeps it: where to go on, as for `tail_many`. A record is done
        when the next one is asked for: then the cursor moves behind it. It is saved meanwhile, some times a
        second, and a file is closed with the iterator.
        """
        from quoth.core.tailing import TailState

        tailing = TailState(topic, after, since, cursor, on_gap)
        try:
            if not tailing.is_placed:
                self._run(tailing.reader.find_end())
            tailing.begin()
        except BaseException:
            tailing.close()
            raise
        return self._tail(tailing)

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
        """Records of several topics that are there now: names, and patterns such as ``orders.*``.

        Arguments as for `read` and `tail_many`. Raises `NotFound` for a name that is no topic's.
        """
        from quoth.core.multi_reader import ReadPlan
        from quoth.reading import Reading

        begin, end = beginning(after, since, 0), calls.last_before(until)
        plan = ReadPlan(False, ordered, begin, end, cursor, is_time=since is not None)
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
        """Records of several topics as they come, for ever; also of new topics that match a pattern.

        cursor: where to go on, whatever `after` and `since` say; a topic that it does not know is read from
        its beginning. They say where it begins with a new one. after: a cursor, or one for each topic, where
        one that is not named is read from its beginning. ordered: in the order of their time, each as soon as
        no older one can come, see `Reading`.
        """
        from quoth.core.multi_reader import ReadPlan
        from quoth.reading import Reading

        begin = beginning(after, since, None)
        plan = ReadPlan(True, ordered, begin, cursor=cursor, is_time=since is not None)
        return Reading(self._pool, self.timeout, topics, plan, on_gap)

    def get(self, topic: str, pointer: int) -> Message:
        """The record with exactly this pointer. Raises `NotFound`, or `Damaged` if its bytes do not check."""
        return self._run(calls.get(topic, pointer, self.timeout))

    # -- topics -----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics, in the order of their UTF-8 bytes."""
        return self._run(calls.topics(self.timeout))

    def topic(self, topic: str) -> TopicInfo:
        """Everything about one topic. Never wakes it."""
        return self._run(calls.info(DescribeTopic(), topic, self.timeout))

    def create_topic(self, topic: str, **settings: Unpack[GivenSettings]) -> TopicInfo:
        """Make a topic: ``create_topic("orders", max_age="7d", max_bytes="1GiB", durability="synced")``.

        Settings that are not given are as the broker is configured; see `quothwire.settings.TopicSettings`.
        Raises `Conflict` ``topic_exists``, `RequestError` ``bad_setting``.
        """
        return self._run(calls.create_topic(topic, as_sent(settings), self.timeout))

    def update_topic(self, topic: str, **settings: Unpack[GivenSettings]) -> TopicInfo:
        """Change settings of a topic, given as for `create_topic`; the others stay as they are."""
        return self._run(calls.info(UpdateTopic(as_sent(settings)), topic, self.timeout))

    def delete_topic(self, topic: str) -> Trimmed:
        """Delete a topic and its records; tells what was removed.

        The topic that is there now, and no other that somebody makes meanwhile under its name. Zeros, if
        that was done by a request whose answer was lost. Raises `NotFound` ``unknown_topic``.
        """
        return self._run(calls.delete_topic(topic, self.timeout))

    def trim(self, topic: str, before: Timestamp) -> Trimmed:
        """Remove the segments that hold only records before a pointer or a time."""
        request = TrimTopic(as_pointer(before))
        return self._run(calls.ask(Trimmed, request, check_topic(topic), timeout=self.timeout))

    def roll(self, topic: str) -> TopicInfo:
        """Seal the topic's active segment."""
        return self._run(calls.info(RollTopic(), topic, self.timeout))

    # -- the broker -------------------------------------------------------------------------------------

    def hello(self) -> Welcome:
        """The broker's version, limits and where it announces."""
        return self._greet()

    def status(self) -> Status:
        """The broker as a whole, with the states of all topics. Wakes none."""
        return self._run(calls.status(self.timeout))

    def ping(self) -> float:
        """Seconds that a round trip takes."""
        began = time.perf_counter()
        self._run(calls.ask(Pong, Ping(), timeout=self.timeout))
        return time.perf_counter() - began

    # -- inside -----------------------------------------------------------------------------------------

    def _greet(self, wait: float | None = None) -> Welcome:
        welcome = self._run(calls.greet(self.timeout, wait))
        self._payload_bytes_max = calls.payload_bytes_max(welcome)
        return welcome

    def _passage(self, reader: BatchCursor[T], wait: float) -> Iterator[T]:
        with self._pool.slot() as slot:
            while not reader.is_done:
                going_on = reader.go_on(wait=wait, timeout=self.timeout)
                yield from self._go_on(going_on, reader, slot)
                if not reader.looking:
                    return

    def _tail(self, tailing: TailState) -> Iterator[Message]:
        reader = tailing.reader
        with tailing, self._pool.slot() as slot:
            while True:
                tailing.save()
                try:
                    found = self._go_on(tailing.follow(self.timeout), reader, slot)
                except QuothError as problem:
                    time.sleep(reader.pause_after(problem))
                    continue
                for one in found:
                    yield from tailing.messages(one)

    def _go_on(self, going_on: ClientCall[Iterator[T]], reader: BatchCursor[T], slot: Slot) -> Iterator[T]:
        with self._pool.channel(slot) as channel:
            found = channel.run(going_on)
            if reader.ahead is not None:
                channel.ask(reader.ahead)
            return found

    def _run(self, call: ClientCall[T]) -> T:
        with self._pool.channel() as channel:
            return channel.run(call)


def beginning(after: Start | None, since: Timestamp | None, default: int | None) -> Start | None:
    """The cursor at which several topics begin, or one for each. Raises `RequestError` as `cursor` does."""
    if isinstance(after, Mapping):
        return {topic: cursor(pointer, since, 0) for topic, pointer in after.items()}
    return default if after is None and since is None else cursor(after, since, 0)
