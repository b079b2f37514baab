"""The client: everything that an application asks of a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from quoth.batch import Batch
from quoth.channel import Context
from quoth.message import Ack, Message
from quoth.moment import Moment, as_pointer, cursor
from quoth.pool import Pool
from quoth.producer import BUFFER_MAX, Producer
from quoth.reader import OnGap, Reader, deadline_in
from quothwire import batch as wire
from quothwire.errors import QuothError, error
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
    Published,
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
from quothwire.pointer import POINTER_MAX
from quothwire.topic import check_topic

DEFAULT_URL = "tcp://127.0.0.1:5555"
TAIL_WAIT_S = 30.0
"""How long the broker keeps a tail's request; a longer silence is a second request."""
AWAY_PAUSE_S = 0.5


class BrokerLike(Protocol):
    """What a broker inside this process offers."""

    @property
    def url(self) -> str:
        """Where it is."""

    @property
    def context(self) -> Context:
        """The ZeroMQ context that its inproc address lives in."""


def connect(broker: str | BrokerLike = DEFAULT_URL, *, timeout: float = 10.0) -> Client:
    """Connect to a broker and check that it answers.

    broker: a URL (tcp://HOST:PORT, ipc://PATH) or a `quothd.Broker` of this process. timeout: seconds that
    any call may take unless it says otherwise, this one included. Raises `Disconnected`.
    """
    if isinstance(broker, str):
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

    It reconnects by itself. A call that fails with ``timed_out`` or ``disconnected`` has an unknown outcome;
    with every other error nothing was stored or changed.
    """

    def __init__(self, url: str, context: Context | None, timeout: float) -> None:
        self.url = url
        self.timeout = timeout
        self._pool = Pool(url, context)

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
        Raises `RequestError`, `Conflict`, `Unavailable` or `BrokerFailure` if nothing was stored, and
        `Disconnected` if that is not known.
        """
        values = [value] if isinstance(value, bytes) else list(value)
        keys, encoded = _columns(values, key, headers)
        request = Publish(durability or "")
        deadline = self._deadline(timeout)
        with self._pool.channel() as channel:
            producer, sequence = channel.next_sequence(topic)
            payload = wire.encode(values, keys, encoded, producer=producer, sequence=sequence)
            try:
                answer = channel.call(request, topic, payload, deadline=deadline)
            except QuothError as problem:
                if problem.code != "unknown_producer":
                    raise
                channel.begin_anew(topic)
                producer, sequence = channel.next_sequence(topic)
                payload = wire.encode(values, keys, encoded, producer=producer, sequence=sequence)
                answer = channel.call(request, topic, payload, deadline=deadline)
            channel.stored(topic, producer, sequence)
        return _ack(answer.reply)

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
        max_buffer: records that wait at most. on_full: `send` waits for room, or raises ``busy``.
        timeout: seconds after which a batch that could not be delivered counts as failed.
        """
        return Producer(
            self._pool.context,
            self.url,
            check_topic(topic),
            batch,
            linger,
            max_buffer,
            on_full,
            durability,
            timeout,
        )

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
    ) -> list[Message]:
        """Records that are there now, oldest first; an empty list if there are none.

        after: a cursor, exclusive. since, until: times; since is included, until is not. Without either
        it reads from the oldest record on. timeout: seconds to wait for the first record.
        """
        end = POINTER_MAX if until is None else as_pointer(until) - 1
        reader = Reader(topic, cursor(after, since, 0), on_gap)
        wait = timeout or 0.0
        messages: list[Message] = []
        with self._pool.channel() as channel:
            while len(messages) < limit and reader.after < end:
                left = limit - len(messages)
                deadline = deadline_in(wait + self.timeout)
                batches = reader.fetch(channel, wait=wait, deadline=deadline, records_max=left)
                if not batches and not reader.looking:
                    break
                wait = 0.0
                for one in batches:
                    messages += one.messages()
        del messages[limit:]
        while messages and messages[-1].pointer > end:
            messages.pop()
        return messages

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
        reader = Reader(topic, self._newest(topic) if start < 0 else start, on_gap)
        return self._tail(reader)

    def get(self, topic: str, pointer: int) -> Message:
        """The record with exactly this pointer. Raises `NotFound`."""
        for message in self.read(topic, after=as_pointer(pointer) - 1 if pointer else 0, limit=1):
            if message.pointer == pointer:
                return message
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
        return self._info(CreateTopic(settings), topic)

    def update_topic(self, topic: str, **settings: Any) -> TopicInfo:
        """Change settings of a topic."""
        return self._info(UpdateTopic(settings), topic)

    def delete_topic(self, topic: str) -> Trimmed:
        """Delete a topic and its records; tells what was removed."""
        return self._trimmed(DeleteTopic(), topic)

    def trim(self, topic: str, before: Moment) -> Trimmed:
        """Remove the segments that hold only records before a pointer or a time."""
        return self._trimmed(TrimTopic(as_pointer(before)), topic)

    def roll(self, topic: str) -> TopicInfo:
        """Seal the topic's active segment."""
        return self._info(RollTopic(), topic)

    # -- the broker -------------------------------------------------------------------------------------

    def hello(self) -> Welcome:
        """The broker's version, limits and where it announces."""
        reply = self._ask(Hello("quoth-python"))
        assert isinstance(reply, Welcome)
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
        while reader.after < end:
            with self._pool.channel() as channel:
                found = reader.fetch(channel, deadline=self._deadline(None))
            if not found and not reader.looking:
                return
            for one in found:
                if one.first > end:
                    return
                yield one

    def _tail(self, reader: Reader) -> Iterator[Message]:
        while True:
            try:
                with self._pool.channel() as channel:
                    deadline = deadline_in(TAIL_WAIT_S + self.timeout)
                    found = reader.fetch(channel, wait=TAIL_WAIT_S, deadline=deadline)
            except QuothError as problem:
                if not _passes(problem, seen=reader.seen):
                    raise
                if problem.code != "unknown_topic":
                    time.sleep(AWAY_PAUSE_S)
                continue
            for one in found:
                yield from one.messages()

    def _newest(self, topic: str) -> int:
        with self._pool.channel() as channel:
            try:
                answer = channel.call(Fetch(after=POINTER_MAX), topic, deadline=self._deadline(None))
            except QuothError as problem:
                if problem.code != "unknown_topic":
                    raise
                return 0
        assert isinstance(answer.reply, Fetched)
        return answer.reply.newest

    def _info(self, request: Request, topic: str) -> TopicInfo:
        reply = self._ask(request, check_topic(topic))
        assert isinstance(reply, TopicInfo)
        return reply

    def _trimmed(self, request: Request, topic: str) -> Trimmed:
        reply = self._ask(request, check_topic(topic))
        assert isinstance(reply, Trimmed)
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
    values: Sequence[bytes],
    key: bytes | Sequence[bytes | None] | None,
    headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes]] | None,
) -> tuple[Sequence[bytes | None] | None, Sequence[bytes] | None]:
    """Keys and encoded headers, one for each value."""
    for value in values:
        if not isinstance(value, bytes):
            raise error("bad_request", f"a value is bytes, not {type(value).__name__}", "encode it")
    count = len(values)
    keys = [key] * count if isinstance(key, bytes) else key
    encoded = None
    if isinstance(headers, Mapping):
        encoded = [wire.encode_headers(headers)] * count
    elif headers is not None:
        encoded = [wire.encode_headers(one) for one in headers]
    for column, name in ((keys, "keys"), (encoded, "headers")):
        if column is not None and len(column) != count:
            raise error("bad_request", f"{len(column)} {name} for {count} values")
    return keys, encoded


def _passes(problem: QuothError, *, seen: bool) -> bool:
    """Does a tail go on after this?"""
    if problem.code == "unknown_topic":
        return not seen
    return problem.retryable


def _ack(reply: Any) -> Ack:
    assert isinstance(reply, Published)
    return Ack(reply.first, reply.last, reply.count, reply.durability, reply.duplicate)
