"""The simple protocol's side of a request: from text frames, to text frames."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from quothwire import batch
from quothwire.errors import QuothError
from quothwire.protocol import text_codec
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.group_messages import GroupFetched, GroupSettled
from quothwire.protocol.messages import Fetched, Operation, Pong, Published, Reply, Topics
from quothwire.protocol.settlement import encode_settlements
from quothwire.protocol.text_codec import SimpleLease, SimpleSettle
from quothwire.record import Record, records_of


class TextResponder:
    """Decodes a request of the simple protocol and encodes its answer, both in text frames.

    See `Responder` in `pending_request`.
    """

    __slots__ = ("_frames", "_route", "operation")
    sees_records_alone: ClassVar[bool] = True
    opens_groups: ClassVar[bool] = True

    def __init__(self, route: list[bytes], frames: Sequence[bytes], operation: Operation) -> None:
        self.operation: Operation = operation
        self._route = route
        self._frames = frames

    def request(self) -> Any:
        """Decode the request: a `Request`, or a `SimplePublish`."""
        request = self._decode()
        return request.message if isinstance(request, SimpleSettle) else request

    def payload(self) -> batch.Bytes:
        """Return the rows of a settlement. The simple protocol has no batches."""
        request = self._decode()
        return encode_settlements(request.rows) if isinstance(request, SimpleSettle) else b""

    def reply(self, reply: Reply, payload: batch.Bytes | None = None) -> Frames:
        """Return the frames of a reply."""
        match reply:
            case Published(first=first, last=last):
                return self._route + text_codec.encode_ok(first, last)
            case Fetched():
                return self._route + self._records(reply, payload or b"")
            case GroupFetched():
                return self._route + leased(reply, payload or b"")
            case GroupSettled():
                return self._route + text_codec.encode_ok(text_codec.count_settled(self._frames, reply))
            case Topics(names=names):
                return self._route + text_codec.encode_ok(rest=[name.encode() for name in names])
            case Pong(time=time):
                return self._route + text_codec.encode_ok(time)
            case _:
                raise AssertionError(f"{reply} has no simple form")

    def refuse(self, problem: QuothError) -> Frames:
        """Return the frames of an error."""
        return self._route + text_codec.encode_error(problem)

    def _decode(self) -> text_codec.SimpleRequest:
        return text_codec.decode_request(self.operation, self._frames)

    def _records(self, fetched: Fetched, payload: batch.Bytes) -> list[bytes]:
        """Return as many records as the request asks for.

        Damage in front of them, or in the first batch, is an error that says where to read on. Damage behind
        them ends the reply.
        """
        read = self.request()
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
        records = records[: read.records_max]
        following = records[-1].pointer if records else fetched.next
        pairs = text_codec.encode_records((one.pointer for one in records), (one.value for one in records))
        return text_codec.encode_ok(following, rest=pairs)


def leased(fetched: GroupFetched, payload: batch.Bytes) -> list[bytes]:
    """Return the records of leases, or the damage if there is nothing else.

    Damaged ones beside others are left out: they are handed out again, at last alone.
    """
    token = fetched.leases[0][0] if fetched.leases else 0
    lease = SimpleLease(fetched.generation, token, fetched.lease_ms)
    leases = sorted([first, last, attempts] for _, attempts, first, last in fetched.leases)
    frames: list[bytes] = []
    damaged: list[int] = []
    for raw in batch.split(payload, fetched.log):
        header = batch.parse_header(raw, fetched.log)
        mine = _within(leases, header.base, header.last)
        try:
            values = batch.decode(raw, fetched.log).values
        except QuothError:
            damaged += (pointer for pointer, _ in mine)
            continue
        for pointer, attempts in mine:
            frames += (b"%d" % pointer, b"%d" % attempts, values[pointer - header.base])
    if damaged and not frames:
        return text_codec.encode_damaged_lease(lease, [*dict.fromkeys(damaged)])
    return text_codec.encode_leased(lease, frames)


def _within(leases: list[list[int]], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the pointers from a low to a high one that are leased, with their attempts."""
    row = max(0, bisect_right(leases, [low, 2**64]) - 1)
    while row < len(leases) and leases[row][0] <= high:
        first, last, attempts = leases[row]
        yield from ((pointer, attempts) for pointer in range(max(first, low), min(last, high) + 1))
        row += 1
