"""A request on its way through the broker: read from its frames, answered in one of the two protocols."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, ClassVar, Protocol

from quothd.access.rights import KnownClient
from quothd.connections.connection import FRAME_BYTES, LEAST_REPLY_BYTES, Connection, Frame
from quothd.requests.text_responder import TextResponder
from quothwire import batch
from quothwire.errors import QuothError, error, shown
from quothwire.native import compiled
from quothwire.protocol import binary_codec, text_codec
from quothwire.protocol.binary_codec import Call, Frames
from quothwire.protocol.messages import (
    FETCH_BYTES_MAX,
    WITH_PAYLOAD,
    WITHOUT_TOPIC,
    Operation,
    Reply,
)
from quothwire.settings import DURABILITIES, Durability
from quothwire.topic import decode_topic

ENVELOPE_FRAMES_MAX = 8
ENVELOPE_BYTES_MAX = 256

_topic_of = lru_cache(maxsize=4_096)(decode_topic)
_NO_DELIMITER = error(
    "bad_request",
    "the request does not begin behind an empty frame",
    "a DEALER has to send an empty frame before the request, a REQ does it by itself; "
    f"at most {ENVELOPE_FRAMES_MAX} frames of {ENVELOPE_BYTES_MAX} bytes may stand before it",
)


class BinaryResponder:
    """Decodes a request of the fast protocol and encodes its answer, with the route to the client in front.

    It holds little, since a hundred thousand fetches may wait. See `Responder`.
    """

    __slots__ = ("_call", "_correlation", "_route", "operation")
    sees_records_alone: ClassVar[bool] = False
    opens_groups: ClassVar[bool] = False

    def __init__(self, route: list[bytes], call: Call) -> None:
        self.operation: Operation = call.operation
        self._route = route
        self._correlation = call.correlation
        self._call: Call | None = call

    def request(self) -> Any:
        """Decode the request: a `Request`. May be called once."""
        assert self._call is not None, "it was decoded already"
        request = binary_codec.decode_arguments(self._call)
        if self.operation not in WITH_PAYLOAD:
            self._call = None
        return request

    def payload(self) -> batch.Bytes:
        """Return the batch that came with the request."""
        return self._call.payload if self._call is not None else b""

    def reply(self, reply: Reply, payload: batch.Bytes | None = None) -> Frames:
        """Return the frames of a reply."""
        return self._route + binary_codec.encode_reply(self.operation, self._correlation, reply, payload)

    def refuse(self, problem: QuothError) -> Frames:
        """Return the frames of an error."""
        return self._route + binary_codec.encode_error(self.operation, self._correlation, problem)


class Responder(Protocol):
    """Decodes a request and makes the frames of its answer.

    sees_records_alone: a reply does not say how far the log reaches behind the records in it. opens_groups: a
    fetch for a group that does not exist creates it.
    """

    @property
    def sees_records_alone(self) -> bool:
        """See above."""

    @property
    def opens_groups(self) -> bool:
        """See above."""

    def request(self) -> Any:
        """Decode the request."""

    def payload(self) -> batch.Bytes:
        """Return what came with it."""

    def reply(self, reply: Reply, payload: batch.Bytes | None = None) -> Frames:
        """Return the frames of a reply."""

    def refuse(self, problem: QuothError) -> Frames:
        """Return the frames of an error."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that has no answer yet.

    responder: makes the answer. topic: its name, "" for a request about the broker. size: bytes that the
    broker holds for it. connection: that of the client. message: the request decoded, None before `decode`.
    after: the cursor of a fetch, which moves on when a segment had nothing. deadline: the monotonic time up
    to which a fetch waits, 0 for one that does not. group: that of a fetch for a group. retry: the monotonic
    time at which it is tried again without anything new. client: the one that asks, None if everything is
    allowed. since: the monotonic time at which its topic has accepted it. durability: ``synced`` for a fetch
    that sees synced records alone, None if it sees what its topic shows.
    """

    responder: Responder
    operation: Operation
    topic: str
    size: int
    connection: Connection
    message: Any = None
    after: int = -1
    deadline: float = 0.0
    group: str = ""
    retry: float = inf
    client: KnownClient | None = None
    since: float = 0.0
    durability: Durability | None = None

    def decode(self) -> Any:
        """Return the message, decoded at the first call. Raises ``bad_request`` and what the codec does."""
        if self.message is None:
            self.message = self.responder.request()
        return self.message

    def begin_fetch(self, now: float) -> None:
        """Set cursor, level and deadline of a fetch, at the first call.

        Raises ``bad_request`` for one that ends before it begins, or a level that does not exist.
        """
        if self.after < 0:
            message = self.decode()
            if message.until:
                check_range(message.after, message.until)
            if message.durability:
                check_durability(message.durability, "fetch")
                self.durability = "synced" if message.durability == "synced" else None
            self.after = message.after
            if message.wait_ms and not self.is_past_end:
                self.deadline = now + message.wait_ms / 1_000

    def begin_group_fetch(self, now: float) -> None:
        """Set group and deadline of a fetch for a group, at the first call."""
        if not self.group:
            message = self.decode()
            self.group = message.group
            self.deadline = now + message.wait_ms / 1_000 if message.wait_ms else 0.0

    def reply_bytes_max(self, asked: int) -> int:
        """Return how many bytes a fetch may return: no more than the connection has room for.

        Raises ``busy`` if that is too little for a fetch.
        """
        most, room = min(asked, FETCH_BYTES_MAX), self.connection.room
        if room >= most:
            return most
        if room < min(most, LEAST_REPLY_BYTES):
            text = f"replies of {self.connection.held} bytes to this connection wait to be read"
            raise error("busy", text, "read them first, or fetch less at a time")
        return room

    @property
    def is_past_end(self) -> bool:
        """True for a fetch that begins at its end."""
        return bool(0 < self.message.until <= self.message.after)


def check_durability(level: str, operation: str) -> None:
    """Raise ``bad_request`` for a level of durability that does not exist."""
    if level not in DURABILITIES:
        text = f"durability of {operation} is {shown(level)}: it must be {' or '.join(DURABILITIES)}"
        raise error("bad_request", text, "empty for the topic's own")


def check_range(after: int, until: int) -> None:
    """Raise ``bad_request`` for a range that ends before it begins."""
    if until < after:
        raise error("bad_request", f"a range that begins after {after} and ends at {until}", "swap the two")


# -- from the frames of a message ---------------------------------------------------------------------------


class RefusedRequest(Exception):
    """The request cannot be read. frames: the answer. has_envelope: the client may understand it."""

    def __init__(self, frames: Frames, *, has_envelope: bool = True) -> None:
        self.frames = frames
        self.has_envelope = has_envelope


@compiled("quothd._native.requests")
def open_request(frames: list[Frame], connection: Connection) -> PendingRequest:
    """Return the request in a message of a connection; its topic is "" for one about the broker.

    Raises `RefusedRequest`.
    """
    if len(frames) > 1 and not frames[1]:
        route, body = [bytes(frames[0]), b""], frames[2:]
    else:
        route, body = _split_envelope(frames)
    responder: BinaryResponder | TextResponder
    try:
        if binary_codec.is_fast(body):
            call = binary_codec.decode_call(body)
            responder, topic = BinaryResponder(route, call), call.topic
        else:
            texts = list(map(bytes, body))
            responder = TextResponder(route, texts, text_codec.operation_of(texts))
            topic = texts[1] if len(texts) > 1 else b""
    except QuothError as problem:
        raise RefusedRequest(_error(route, body, problem)) from None
    try:
        name = "" if responder.operation in WITHOUT_TOPIC else _topic_of(topic)
    except QuothError as problem:
        raise RefusedRequest(responder.refuse(problem)) from None
    size = sum(map(len, body)) + FRAME_BYTES * len(body)
    return PendingRequest(responder, responder.operation, name, size, connection)


def _split_envelope(frames: list[Frame]) -> tuple[list[bytes], list[Frame]]:
    """Return the route up to and with the empty delimiter, and the frames behind it."""
    for at, frame in enumerate(frames[: ENVELOPE_FRAMES_MAX + 2]):  # the ROUTER's id, theirs, the delimiter
        if not frame:
            return list(map(bytes, frames[: at + 1])), frames[at + 1 :]
        if len(frame) > ENVELOPE_BYTES_MAX:
            break
    answer = [bytes(frames[0]), b"", *text_codec.encode_error(_NO_DELIMITER)]
    raise RefusedRequest(answer, has_envelope=False)


def _error(route: list[bytes], body: list[Frame], problem: QuothError) -> Frames:
    """Return the error of a request that cannot be read, in the protocol that it comes closest to."""
    if binary_codec.is_fast(body):
        operation = body[0][3] if len(body[0]) > 3 else 0
        return route + binary_codec.encode_error(operation, binary_codec.correlation_of(body), problem)
    return route + text_codec.encode_error(problem)
