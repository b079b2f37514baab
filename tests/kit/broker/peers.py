"""Raw ZeroMQ peers of a broker: requests and replies frame by frame, each with a deadline.

A peer belongs to one thread. An error in a reply is raised.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar

import zmq

from kit.deadlines import DEADLINE_S, eventually
from kit.disk.logs import encoded
from quothwire import batch
from quothwire.closing import Closeable
from quothwire.errors import QuothError, error
from quothwire.protocol import announcement, binary_codec
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import (
    DescribeTopic,
    Fetch,
    Fetched,
    GetStatus,
    Ping,
    Pong,
    Publish,
    Published,
    Request,
    Status,
    TopicInfo,
)
from quothwire.record import Record, records_of
from quothwire.security.key_file import Key

Context = zmq.Context[zmq.Socket[bytes]]
Kept = TypeVar("Kept", bound=Closeable)


class HasUrl(Protocol):
    """A broker, in this process or another one."""

    @property
    def url(self) -> str: ...


def set_key(socket: zmq.Socket[bytes], key: Key | None) -> None:
    """Let a socket use a key from its next connection on."""
    if key is not None:
        socket.set(zmq.CURVE_SERVERKEY, key.server_keys[0].encode())
        socket.set(zmq.CURVE_PUBLICKEY, key.public_key.encode())
        socket.set(zmq.CURVE_SECRETKEY, key.secret_key.encode())


class Peer(Closeable):
    """A socket that is connected to a broker, and frames.

    unread_max: messages that it takes without their being read, 0 for any number. key: that of the client.
    """

    def __init__(
        self,
        context: Context,
        url: str,
        kind: int = zmq.DEALER,
        *,
        identity: bytes = b"",
        unread_max: int = 0,
        key: Key | None = None,
    ) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(kind)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.RCVHWM, unread_max)
        self.socket.set(zmq.SNDHWM, 0)
        if identity:
            self.socket.set(zmq.IDENTITY, identity)
        set_key(self.socket, key)
        self.socket.connect(url)

    def close(self) -> None:
        self.socket.close(linger=0)

    def send_frames(self, frames: Sequence[bytes]) -> None:
        self.socket.send_multipart(frames)

    def receive_frames(self, seconds: float = DEADLINE_S) -> list[bytes]:
        assert self.socket.poll(max(0, int(seconds * 1_000))), f"nothing came within {seconds:g} s"
        return self.socket.recv_multipart()

    def is_silent(self, seconds: float) -> bool:
        return not self.socket.poll(int(seconds * 1_000))


class SimplePeer(Peer):
    """A client that speaks the simple protocol, through REQ or DEALER."""

    def ask(self, *frames: bytes | str | int) -> list[bytes]:
        self.send(*frames)
        return self.receive()

    def send(self, *frames: bytes | str | int) -> None:
        delimiter = [] if self.socket.type == zmq.REQ else [b""]
        self.send_frames([*delimiter, *map(_as_frame, frames)])

    def receive(self, seconds: float = DEADLINE_S) -> list[bytes]:
        """The next reply, without the delimiter."""
        frames = self.receive_frames(seconds)
        if self.socket.type != zmq.REQ:
            assert frames.pop(0) == b""
        return frames

    def call(self, *frames: bytes | str | int) -> list[bytes]:
        """Send a request; returns what follows "ok"."""
        status, *rest = self.ask(*frames)
        if status == b"error":
            raise error(rest[0].decode(), rest[1].decode())
        assert status == b"ok"
        return rest

    def publish(self, topic: str | bytes, *values: bytes) -> tuple[int, int]:
        first, last = map(int, self.call("publish", topic, *values))
        return first, last

    def read(
        self, topic: str | bytes, after: int = 0, limit: int = 100, wait_ms: int = 0
    ) -> tuple[int, list[tuple[int, bytes]]]:
        """The cursor to go on with, and records as pointer and value."""
        following, *pairs = self.call("read", topic, after, limit, wait_ms)
        return int(following), list(zip(map(int, pairs[::2]), pairs[1::2], strict=True))

    def topics(self, after: str = "") -> list[str]:
        return [name.decode() for name in self.call("topics", after)]


class Found(NamedTuple):
    """The answer to a fetch: the message, the records above the cursor, how many batches they came in."""

    reply: Fetched
    records: list[Record]
    batches: int

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]


class FastPeer(Peer):
    """A client that speaks the fast protocol; it may have many requests on their way."""

    def __init__(self, context: Context, url: str, **options: Any) -> None:
        super().__init__(context, url, **options)
        self._correlations = count(1)
        self._early: dict[int, Answer] = {}

    # -- one by one -------------------------------------------------------------------------------------

    def send(self, request: Request, topic: str = "", payload: bytes | None = None) -> int:
        correlation = next(self._correlations)
        self.send_frames([b"", *binary_codec.encode_request(request, correlation, topic, payload)])
        return correlation

    def receive(self, seconds: float = DEADLINE_S) -> Answer:
        """The next answer, whatever request it belongs to."""
        frames = self.receive_frames(seconds)
        assert frames[0] == b""
        return binary_codec.decode_answer(frames[1:])

    def answer_to(self, correlation: int, seconds: float = DEADLINE_S) -> Answer:
        """The answer to one request; those that come before it are kept."""
        deadline = time.monotonic() + seconds
        while correlation not in self._early:
            answer = self.receive(deadline - time.monotonic())
            self._early[answer.correlation] = answer
        return self._early.pop(correlation)

    def answers_to(self, correlations: Iterable[int], seconds: float = DEADLINE_S) -> list[Answer]:
        deadline = time.monotonic() + seconds
        return [self.answer_to(one, deadline - time.monotonic()) for one in correlations]

    def request(self, request: Request, topic: str = "", payload: bytes | None = None) -> Answer:
        return self.answer_to(self.send(request, topic, payload))

    def call(self, request: Request, topic: str = "", payload: bytes | None = None) -> Any:
        """Send a request and wait for its reply. Raises the error of the answer."""
        return replied(self.request(request, topic, payload))

    # -- shortcuts --------------------------------------------------------------------------------------

    def publish(self, topic: str, values: Sequence[bytes], durability: str = "", **of: Any) -> Published:
        reply = self.call(Publish(durability), topic, encoded(values, **of))
        assert isinstance(reply, Published)
        return reply

    def send_publish(self, topic: str, values: Sequence[bytes], durability: str = "", **of: Any) -> int:
        return self.send(Publish(durability), topic, encoded(values, **of))

    def fetch(self, topic: str, after: int = 0, **arguments: Any) -> Found:
        return found_in(self.request(Fetch(after=after, **arguments), topic), after)

    def send_fetch(self, topic: str, after: int = 0, **arguments: Any) -> int:
        return self.send(Fetch(after=after, **arguments), topic)

    def read_all(self, topic: str, after: int = 0, **arguments: int) -> list[Record]:
        records: list[Record] = []
        while True:
            found = self.fetch(topic, after, **arguments)
            if not found.records:
                return records
            records += found.records
            assert found.reply.next == records[-1].pointer
            after = found.reply.next

    def values(self, topic: str) -> list[bytes]:
        return [record.value for record in self.read_all(topic)]

    def describe(self, topic: str) -> TopicInfo:
        reply = self.call(DescribeTopic(), topic)
        assert isinstance(reply, TopicInfo)
        return reply

    def status(self, limit: int = 1_000, after: str = "") -> Status:
        reply = self.call(GetStatus(limit=limit, after=after))
        assert isinstance(reply, Status)
        return reply


class Subscriber(Peer):
    def __init__(self, context: Context, url: str, *prefixes: bytes, key: Key | None = None) -> None:
        super().__init__(context, url, zmq.SUB, key=key)
        for prefix in prefixes:
            self.socket.subscribe(prefix)

    def next(self, seconds: float = DEADLINE_S) -> tuple[str, int]:
        (frame,) = self.receive_frames(seconds)
        return announcement.decode(frame)


class Peers:
    """Makes peers that are closed at the end of the test."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._made: list[Closeable] = []

    def fast(self, broker: str | HasUrl, **options: Any) -> FastPeer:
        return self.keep(FastPeer(self.context, _url(broker), **options))

    def simple(self, broker: str | HasUrl, kind: int = zmq.DEALER, **options: Any) -> SimplePeer:
        return self.keep(SimplePeer(self.context, _url(broker), kind, **options))

    def keep(self, made: Kept) -> Kept:
        self._made.append(made)
        return made

    def close(self) -> None:
        """Close them, the last one first: it may belong to one before it."""
        while self._made:
            self._made.pop().close()


def replied(answer: Answer) -> Any:
    """Return the message of an answer. Raises its error."""
    if isinstance(answer.reply, QuothError):
        raise answer.reply
    return answer.reply


def found_in(answer: Answer, after: int = 0) -> Found:
    """Return the records above a pointer in the answer to a fetch. Raises its error."""
    reply = replied(answer)
    assert isinstance(reply, Fetched)
    raws = batch.split(answer.payload, reply.log)
    records = [record for raw in raws for record in records_of(batch.decode(raw, reply.log), after)]
    return Found(reply, records, len(raws))


def code_of(answer: Answer) -> str:
    return answer.reply.code if isinstance(answer.reply, QuothError) else ""


def is_answered(peer: FastPeer) -> bool:
    """Send one more ping, since a connection that ends takes those before with it; true at an answer."""
    peer.send(Ping())
    while not peer.is_silent(0.1):
        if isinstance(peer.receive().reply, Pong):
            return True
    return False


def hibernates(fast: FastPeer) -> bool:
    return fast.status(limit=0).active == 0


def hibernate(fast: FastPeer) -> None:
    """Wait until all topics hibernate."""
    eventually(lambda: hibernates(fast), "all topics hibernate")


@contextmanager
def refused(code: str) -> Iterator[None]:
    """Expect that the block raises an error with this code."""
    try:
        yield
        raise AssertionError(f"this was not refused as {code}")
    except QuothError as problem:
        if problem.code != code:
            raise AssertionError(f"refused as {problem}, not as {code}") from problem


def _url(broker: str | HasUrl) -> str:
    return broker if isinstance(broker, str) else broker.url


def _as_frame(part: bytes | str | int) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()
