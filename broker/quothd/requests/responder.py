"""A caller: where an answer goes and in which of the two protocols it is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quothwire import batch
from quothwire.errors import QuothError
from quothwire.protocol import binary_codec, text_codec
from quothwire.protocol.binary_codec import Call, Frames
from quothwire.protocol.messages import Fetch, Fetched, ListTopics, Operation, Ping, Pong, Published, Topics
from quothwire.protocol.operations import WITH_PAYLOAD, Reply
from quothwire.record import Record, records_of

SIMPLE_READ_BYTES = 2**20


class Responder(Protocol):
    """Reads the request of one client and words the answers to it, route included."""

    @property
    def operation(self) -> Operation:
        """What it asks for."""

    @property
    def sees_records_alone(self) -> bool:
        """True if a reply tells it nothing of how far the log reaches behind the records in it."""

    def request(self) -> Any:
        """Its request, decoded: a `Request`, or a `SimplePublish`. To be asked for once."""

    def payload(self) -> batch.Bytes:
        """The batch that came with it."""

    def reply(self, reply: Reply, payload: batch.Bytes | None = None) -> Frames:
        """The frames of a reply."""

    def refuse(self, problem: QuothError) -> Frames:
        """The frames of an error."""


class BinaryResponder:
    """A client that speaks the fast protocol. A hundred thousand may wait, so it keeps what it needs."""

    __slots__ = ("_call", "_correlation", "_operation", "_route")

    def __init__(self, route: list[bytes], call: Call) -> None:
        self._route = route
        self._operation, self._correlation = call.operation, call.correlation
        self._call: Call | None = call

    @property
    def operation(self) -> Operation:
        """See `Responder.operation`."""
        return self._operation

    @property
    def sees_records_alone(self) -> bool:
        """See `Responder.sees_records_alone`."""
        return False

    def request(self) -> Any:
        """See `Responder.request`."""
        assert self._call is not None, "it was decoded already"
        request = binary_codec.decode_arguments(self._call)
        if self._operation not in WITH_PAYLOAD:
            self._call = None
        return request

    def payload(self) -> batch.Bytes:
        """See `Responder.payload`."""
        return self._call.payload if self._call is not None else b""

    def reply(self, reply: Reply, payload: batch.Bytes | None = None) -> Frames:
        """See `Responder.reply`."""
        return self._route + binary_codec.encode_reply(self._operation, self._correlation, reply, payload)

    def refuse(self, problem: QuothError) -> Frames:
        """See `Responder.refuse`."""
        return self._route + binary_codec.encode_error(self._operation, self._correlation, problem)


class TextResponder:
    """A client that speaks the simple protocol: text frames in, text frames out."""

    __slots__ = ("_frames", "_operation", "_route")

    def __init__(self, route: list[bytes], frames: Sequence[bytes], operation: Operation) -> None:
        self._route = route
        self._frames = frames
        self._operation = operation

    @property
    def operation(self) -> Operation:
        """See `Responder.operation`."""
        return self._operation

    @property
    def sees_records_alone(self) -> bool:
        """See `Responder.sees_records_alone`."""
        return True

    def request(self) -> Any:
        """See `Responder.request`."""
        match self._operation:
            case Operation.PUBLISH:
                return text_codec.decode_publish(self._frames)
            case Operation.FETCH:
                read = text_codec.decode_read(self._frames)
                return Fetch(
                    after=read.after,
                    records_max=read.limit,
                    bytes_max=SIMPLE_READ_BYTES,
                    wait_ms=read.wait_ms,
                )
            case Operation.LIST:
                return ListTopics(after=text_codec.decode_topics(self._frames))
            case _:
                return Ping()

    def payload(self) -> batch.Bytes:
        """See `Responder.payload`: the simple protocol has none."""
        return b""

    def reply(self, reply: Reply, payload: batch.Bytes | None = None) -> Frames:
        """See `Responder.reply`."""
        match reply:
            case Published(first=first, last=last):
                return self._route + text_codec.encode_ok(first, last)
            case Fetched():
                return self._route + self._records(reply, payload or b"")
            case Topics(names=names):
                return self._route + text_codec.encode_ok(rest=[name.encode() for name in names])
            case Pong(time=time):
                return self._route + text_codec.encode_ok(time)
            case _:
                raise AssertionError(f"{reply} has no simple form")

    def refuse(self, problem: QuothError) -> Frames:
        """See `Responder.refuse`."""
        return self._route + text_codec.encode_error(problem)

    def _records(self, fetched: Fetched, payload: batch.Bytes) -> list[bytes]:
        """Exactly as many records as were asked for; damage in front of them, or in the first batch, is an
        error that tells where to read on, and damage behind them ends the reply."""
        read = text_codec.decode_read(self._frames)
        if fetched.damaged and not payload:
            text = f"the {fetched.damaged} records up to {fetched.next}, the last ones, do not check"
            return text_codec.encode_damaged(text, fetched.next)
        if fetched.damaged and read.after < (base := batch.parse_header(payload, fetched.log).base) - 1:
            text = f"up to {fetched.damaged} records in front of {base} do not check"
            return text_codec.encode_damaged(text, base - 1)
        records: list[Record] = []
        for raw in batch.split(payload, fetched.log):
            try:
                records += records_of(batch.decode(raw, fetched.log), read.after)
            except QuothError as problem:
                if not records:
                    header = batch.parse_header(raw, fetched.log)
                    text = f"the {header.records} records up to {header.last} do not check: {problem.text}"
                    return text_codec.encode_damaged(text, header.last)
                break
        records = records[: read.limit]
        following = records[-1].pointer if records else fetched.next
        pairs = text_codec.encode_records((one.pointer for one in records), (one.value for one in records))
        return text_codec.encode_ok(following, rest=pairs)
