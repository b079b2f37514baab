"""The client: everything that an application asks of a broker."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from quoth.batch import Batch, Messages
from quoth.channel import Context, Link
from quoth.deadline import deadline_in
from quoth.message import Ack, Gap, Message, OnGap
from quoth.moment import Moment, as_pointer, cursor
from quoth.pool import Pool
from quoth.producer import BUFFER_MAX, Producer, ProducerOptions
from quoth.reader import Reader
from quothwire import batch as wire
from quothwire.codec import Answer
from quothwire.errors import Conflict, NotFound, QuothError, error
from quothwire.message import (
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    Fetch,
    Fetched,
    GetStatus,
    Hello,
    ListTopics,
    Ping,
    Publish,
    Request,
    RollTopic,
    Status,
    TopicInfo,
    Topics,
    Trimmed,
    TrimTopic,
    UpdateTopic,
    Welcome,
)
from quothwire.pointer import POINTER_MAX, check_pointer
from quothwire.topic import check_topic

DEFAULT_URL = "tcp://127.0.0.1:5555"
DEFAULT_TIMEOUT_S = 10.0
TAIL_WAIT_S = 30.0
"""How long the broker keeps a tail's request; a longer silence is a second request."""
AWAY_PAUSE_S = 0.5
_BYTES = frozenset((bytes,))


class BrokerLike(Protocol):
    """What a broker inside this process offers."""

    @property
    def url(self) -> str:
        """Where it is."""

    @property
    def context(self) -> Context:
        """The ZeroMQ context that its inproc address lives in."""


def connect(broker: str | BrokerLike = DEFAULT_URL, *, timeout: float = DEFAULT_TIMEOUT_S) -> Client:
    """Connect to a broker and check that it answers.

    broker: a URL (tcp://HOST:PORT, ipc://PATH) or a `quothd.Broker` of this process. timeout: seconds that
    any call may take unless it says otherwise, this one included. Raises `Disconnected`, or `RequestError`
    ``bad_request`` for an address that can only be reached through the `Broker` itself.
    """
    if isinstance(broker, str):
        if broker.startswith("inproc:"):
            raise error(
                "bad_request", f"{broker} is inside a process", "connect to the Broker, not to its url"
            )
        client = Client(broker, None, timeout)
    else:
        client = Client(broker.url, broker.context, timeout)
    try:
        client.hello()
    except BaseException:
        client.close()
        raise
    return client


class Client:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        values, keys, encoded = _columns(value, key, headers)

        def encode(producer: int, sequence: int) -> bytes:
            payload = wire.encode(values, keys, encoded, producer=producer, sequence=sequence)
            if len(payload) > self._payload_bytes_max:
                limit = self._payload_bytes_max
                raise error("too_large", f"a batch of {len(payload)} bytes, the broker takes {limit}")
            return payload

        request = Publish(durability or "")
        with self._pool.channel() as channel:
            reply = channel.publish(request, topic, encode, self._deadline(timeout))
        return Ack(reply.first, reply.last, reply.count, reply.durability, reply.duplicate)

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
        options = ProducerOptions(
            batch, linger, max_buffer, on_full, durability, timeout, self._payload_bytes_max
        )
        return Producer(self._pool.context, self.url, check_topic(topic), options)

    def _link(self) -> Link:
        """A connection of its own, for whoever keeps many requests on their way. He closes it."""
        return Link(self._pool.context, self.url)

    # -- reading ----------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 1_000,
        timeout: float | None = None,
        on_gap: OnGap | None = None,
    ) -> Messages:
        """Records that are there now, oldest first, in a sequence that makes each message as it is looked at.

        after: a cursor, exclusive. since, until: times; since is included, until is not. Without either
        it reads from the oldest record on. timeout: seconds to wait for the first record.
        """
        end = POINTER_MAX if until is None else as_pointer(until) - 1
        reader = Reader(topic, cursor(after, since, 0), on_gap)
        parts: list[Batch | list[Message]] = []
        count = 0
        waiting_until = deadline_in(timeout or 0.0)
        with self._pool.channel() as channel:
            while count < limit and reader.after < end:
                wait = 0.0 if count else max(0.0, waiting_until - time.monotonic())
                left = limit - count
                for one in reader.fetch(channel, wait=wait, timeout=self.timeout, records_max=left):
                    parts.append(reader.select(one, limit - count, end))
                    count += len(parts[-1])
                    if count >= limit:
                        break
                if not reader.looking and (count or time.monotonic() >= waiting_until):
                    break
        return Messages(parts)

    def batches(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        on_gap: OnGap | None = None,
    ) -> Iterator[Batch]:
        """Batches that are there now, oldest first: the fast path for many records.

        Arguments as for `read`; the last batch may reach beyond `until`.
        """
        end = POINTER_MAX if until is None else as_pointer(until) - 1
        reader = Reader(topic, cursor(after, since, 0), on_gap)
        return self._batches(reader, end)

    def _fetch_stored(self, topic: str, after: int, wait: float, bytes_max: int) -> Answer:
        """Stored batches with records above a pointer, as the broker answers: see `StoredReader`."""
        request = Fetch(after=after, bytes_max=bytes_max, wait_ms=math.ceil(wait * 1_000))
        with self._pool.channel() as channel:
            deadline = self._deadline(wait + self.timeout)
            return channel.call(request, check_topic(topic), deadline=deadline, wait=wait)

    def tail(
        self,
        topic: str,
        *,
        after: int | None = None,
        since: Moment | None = None,
        on_gap: OnGap | None = None,
    ) -> Iterator[Message]:
        """Records as they come, for ever: from now on, or behind a cursor, or since a time.

        It waits in silence, also for a topic that does not exist yet and for a broker that is away. It ends
        with `NotFound` when the topic is deleted.
        """
        start = cursor(after, since, -1)
        reader = Reader(topic, max(start, 0), on_gap)
        if start < 0:
            self._go_to_end(reader)
        return self._tail(reader)

    def get(self, topic: str, pointer: int) -> Message:
        """The record with exactly this pointer. Raises `NotFound`, or `Damaged` if its bytes do not check."""
        gaps: list[Gap] = []
        before = max(0, check_pointer(pointer) - 1)
        for message in self.read(topic, after=before, limit=1, on_gap=gaps.append):
            if message.pointer == pointer:
                return message
        if any(gap.reason == "damaged" and gap.after < pointer < gap.next for gap in gaps):
            raise error("damaged", f"topic {topic!r}: the record {pointer} does not check")
        raise error("unknown_record", f"topic {topic!r} holds no record {pointer}")

    # -- topics -----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        """The names of all topics, in the order of their UTF-8 bytes."""
        names: list[str] = []
        while True:
            reply = self._ask(ListTopics(after=names[-1] if names else ""))
            assert isinstance(reply, Topics)
            if not reply.names:
                return names
            names += reply.names

    def topic(self, topic: str) -> TopicInfo:
        """Everything about one topic. Never wakes it."""
        return self._info(DescribeTopic(), topic)

    def create_topic(self, topic: str, **settings: Any) -> TopicInfo:
        """Make a topic; settings as in `TopicSettings`. Raises `Conflict` ``topic_exists``."""
        with self._pool.channel() as channel:
            deadline = self._deadline(None)
            try:
                reply = channel.call(CreateTopic(settings), check_topic(topic), deadline=deadline).reply
            except Conflict:
                if not channel.unheard:
                    raise
                # A copy that was not answered may have made it: the topic that was asked for is there.
                reply = channel.call(DescribeTopic(), topic, deadline=deadline).reply
                assert isinstance(reply, TopicInfo)
                if reply.settings != {**reply.settings, **settings}:
                    raise
        assert isinstance(reply, TopicInfo)
        return reply

    def update_topic(self, topic: str, **settings: Any) -> TopicInfo:
        """Change settings of a topic."""
        return self._info(UpdateTopic(settings), topic)

    def delete_topic(self, topic: str) -> Trimmed:
        """Delete a topic and its records; tells what was removed.

        The topic that is there now, and no other that somebody makes meanwhile under its name. Zeros, if
        that was done by a request whose answer was lost. Raises `NotFound` ``unknown_topic``.
        """
        with self._pool.channel() as channel:
            deadline = self._deadline(None)
            found = channel.call(DescribeTopic(), check_topic(topic), deadline=deadline).reply
            assert isinstance(found, TopicInfo)
            try:
                reply = channel.call(DeleteTopic(found.log), topic, deadline=deadline).reply
            except NotFound:
                if not channel.unheard:
                    raise
                reply = Trimmed(0, 0, 0)
        assert isinstance(reply, Trimmed)
        return reply

    def trim(self, topic: str, before: Moment) -> Trimmed:
        """Remove the segments that hold only records before a pointer or a time."""
        reply = self._ask(TrimTopic(as_pointer(before)), check_topic(topic))
        assert isinstance(reply, Trimmed)
        return reply

    def roll(self, topic: str) -> TopicInfo:
        """Seal the topic's active segment."""
        return self._info(RollTopic(), topic)

    # -- the broker -------------------------------------------------------------------------------------

    def hello(self) -> Welcome:
        """The broker's version, limits and where it announces."""
        reply = self._ask(Hello("quoth-python"))
        assert isinstance(reply, Welcome)
        frame_bytes_max = reply.limits.get("frame_bytes_max", wire.BATCH_BYTES_MAX)
        self._payload_bytes_max = min(wire.BATCH_BYTES_MAX, frame_bytes_max)
        return reply

    def status(self) -> Status:
        """The broker as a whole, with the states of all topics. Wakes none."""
        first = last = self._status("")
        states = dict(first.states)
        while last.states:
            last = self._status(list(last.states)[-1])
            states |= last.states
        return Status(
            **{name: getattr(first, name) for name in Status.__dataclass_fields__} | {"states": states}
        )

    def ping(self) -> float:
        """Seconds that a round trip takes."""
        began = time.perf_counter()
        self._ask(Ping())
        return time.perf_counter() - began

    # -- inside -----------------------------------------------------------------------------------------

    def _batches(self, reader: Reader, end: int) -> Iterator[Batch]:
        with self._pool.slot() as slot:
            while reader.after < end:
                with self._pool.channel(slot) as channel:
                    found = reader.go_on(channel, timeout=self.timeout)
                for one in found:
                    if one.first > end:
                        return
                    yield one
                if not reader.looking:
                    return

    def _tail(self, reader: Reader) -> Iterator[Message]:
        with self._pool.slot() as slot:
            while True:
                try:
                    with self._pool.channel(slot) as channel:
                        found = reader.go_on(channel, wait=TAIL_WAIT_S, timeout=self.timeout)
                except QuothError as problem:
                    if not _passes(problem, seen=reader.seen):
                        raise
                    if problem.code != "unknown_topic":
                        time.sleep(AWAY_PAUSE_S)
                    continue
                for one in found:
                    yield from reader.messages(one)

    def _go_to_end(self, reader: Reader) -> None:
        """Let a reader begin behind the newest record; of a topic that does not exist yet it gets all."""
        with self._pool.channel() as channel:
            try:
                answer = channel.call(Fetch(after=POINTER_MAX), reader.topic, deadline=self._deadline(None))
            except QuothError as problem:
                if problem.code != "unknown_topic":
                    raise
                return
        assert isinstance(answer.reply, Fetched)
        reader.go_to_end(answer.reply)

    def _info(self, request: Request, topic: str) -> TopicInfo:
        reply = self._ask(request, check_topic(topic))
        assert isinstance(reply, TopicInfo)
        return reply

    def _status(self, after: str) -> Status:
        reply = self._ask(GetStatus(after=after))
        assert isinstance(reply, Status)
        return reply

    def _ask(self, request: Request, topic: str = "") -> Any:
        with self._pool.channel() as channel:
            return channel.call(request, topic, deadline=self._deadline(None)).reply

    def _deadline(self, timeout: float | None) -> float:
        return deadline_in(self.timeout if timeout is None else timeout)


def _columns(
    value: bytes | Sequence[bytes],
    key: bytes | Sequence[bytes | None] | None,
    headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None,
) -> tuple[Sequence[bytes], Sequence[bytes | None] | None, Sequence[bytes] | None]:
    """Values, keys and encoded headers, one of each for every record."""
    values = [value] if isinstance(value, bytes) else _several(value, "a value")
    if not _BYTES.issuperset(map(type, values)):
        for one in values:
            if not isinstance(one, bytes):
                raise _not_bytes(one, "a value")
    count = len(values)
    keys = None
    if key is not None:
        keys = [key] * count if isinstance(key, bytes) else _several(key, "a key")
        for one in keys:
            if one is not None and not isinstance(one, bytes):
                raise _not_bytes(one, "a key")
    encoded = None
    if isinstance(headers, Mapping):
        encoded = [wire.encode_headers(headers)] * count
    elif headers is not None:
        each = list(headers) if isinstance(headers, Iterable) else [headers]
        encoded = [wire.encode_headers(one) for one in each]
    for column, name in ((keys, "keys"), (encoded, "headers")):
        if column is not None and len(column) != count:
            raise error("bad_request", f"{len(column)} {name} for {count} values")
    return values, keys, encoded


def _several(given: Any, what: str) -> list[Any]:
    """A list of what was given; text and buffers have elements too, but are meant as one."""
    if isinstance(given, (str, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise _not_bytes(given, what)
    return list(given)


def _not_bytes(given: Any, what: str) -> QuothError:
    return error("bad_request", f"{what} is bytes, not {type(given).__name__}", "encode it")


def _passes(problem: QuothError, *, seen: bool) -> bool:
    """Does a tail go on after this?"""
    if problem.code == "unknown_topic":
        return not seen
    return problem.retryable
