"""The simple protocol: text frames that can be written by hand in any ZeroMQ binding.

    request                                        reply
    "ping"                                         "ok" TIME
    "publish" TOPIC VALUE [VALUE ...]              "ok" FIRST LAST
    "read" TOPIC [AFTER [LIMIT [WAIT_MS]]]         "ok" NEXT [POINTER VALUE ...]
    "topics" [AFTER]                               "ok" [TOPIC ...]
    anything that goes wrong                       "error" CODE TEXT
    a "read" that meets what is damaged            "error" "damaged" TEXT NEXT

    "group.fetch" TOPIC GROUP [LIMIT [WAIT_MS [LEASE_MS]]]
                                                   "ok" LEASE [POINTER ATTEMPTS VALUE ...]
    "group.ack" TOPIC GROUP LEASE POINTER [POINTER ...], and so "group.nack", "group.release", "group.extend",
    "group.term"
                                                   "ok" COUNT
    a "group.fetch" of nothing but damage          "error" "damaged" TEXT LEASE POINTER [POINTER ...]

All of them follow the empty delimiter, which REQ adds and a DEALER sends. Numbers are ASCII decimals. LIMIT
is exact here. The reply has the frames before the delimiter again, so that a DEALER that pipelines can put an
id of its own there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, NamedTuple

from quothwire.errors import SHOWN_MAX, QuothError, error, shown_frame
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.group_messages import LEASE_MS_MAX, GroupFetch, GroupSettle, GroupSettled
from quothwire.protocol.group_settings import decode_group
from quothwire.protocol.messages import POINTERS, WAIT_MS_MAX, Fetch, ListTopics, Operation, Ping, Request
from quothwire.protocol.settlement import Settle, Settlement
from quothwire.protocol.value import Range
from quothwire.topic import decode_topic

READ_LIMIT_MAX = 10_000
"""Each record takes two frames. A larger reply costs more than a second request."""
READ_BYTES = 2**20
"""A read returns records of so many stored bytes."""
PUBLISH_VALUES_MAX = 10_000
LEASED_MAX = 1_000
"""Records of one group.fetch, so that one request settles all of them; and pointers of that."""

OPERATIONS: dict[bytes, tuple[Operation, int, float, str]] = {
    b"ping": (Operation.PING, 1, 1, "ping"),
    b"publish": (Operation.PUBLISH, 3, inf, "publish TOPIC VALUE [VALUE ...]"),
    b"read": (Operation.FETCH, 2, 5, "read TOPIC [AFTER [LIMIT [WAIT_MS]]]"),
    b"topics": (Operation.LIST, 1, 2, "topics [AFTER]"),
    b"group.fetch": (Operation.GROUP_FETCH, 3, 6, "group.fetch TOPIC GROUP [LIMIT [WAIT_MS [LEASE_MS]]]"),
    **{
        f"group.{kind.name.lower()}".encode(): (
            Operation.GROUP_SETTLE,
            5,
            inf,
            f"group.{kind.name.lower()} TOPIC GROUP LEASE POINTER [POINTER ...]",
        )
        for kind in Settle
    },
}
"""By the first frame: the operation, the least and the largest number of frames, and the form."""
_SETTLES = {f"group.{kind.name.lower()}".encode(): kind for kind in Settle}
_NUMBERS = (
    ("AFTER", "after", POINTERS),
    ("LIMIT", "records_max", Range(1, READ_LIMIT_MAX)),
    ("WAIT_MS", "wait_ms", Range(0, WAIT_MS_MAX)),
)
"""The numbers of a read in their order, with the field of `Fetch` and its bounds here."""
_GROUP_NUMBERS = (
    ("LIMIT", "records_max", Range(1, LEASED_MAX)),
    ("WAIT_MS", "wait_ms", Range(0, WAIT_MS_MAX)),
    ("LEASE_MS", "lease_ms", Range(0, LEASE_MS_MAX)),
)
"""The same of a group.fetch and `GroupFetch`."""
_SETTLED = Range(1, POINTER_MAX, "bad_pointer")
_DIGITS_MAX = 20
"""Digits of a number of 64 bits."""
_LEASE = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}-[0-9]{1,20}")


class SimplePublish(NamedTuple):
    """Values to append as consecutive records."""

    values: Sequence[bytes]


class SimpleLease(NamedTuple):
    """The lease of the records in one reply, which a client gives back as it is."""

    generation: int
    token: int
    lease_ms: int


class SimpleSettle(NamedTuple):
    """A settlement with its rows, which the fast protocol has as a payload."""

    message: GroupSettle
    rows: list[Settlement]


SimpleRequest = SimplePublish | SimpleSettle | Request


def operation_of(frames: Sequence[bytes]) -> Operation:
    """Return the operation of a request. Raises ``bad_request`` or ``unknown_operation``."""
    if not frames:
        raise error("bad_request", "an empty request")
    if frames[0] not in OPERATIONS:
        known = ", ".join(name.decode() for name in OPERATIONS)
        text = f"the operation is {shown_frame(frames[0])}"
        raise error("unknown_operation", text, f"the simple protocol knows {known}")
    operation, low, high, form = OPERATIONS[frames[0]]
    if not low <= len(frames) <= high:
        count = f"{low}" if low == high else f"{low} or more" if high == inf else f"{low} to {high}"
        text = f"{frames[0].decode()} has {count} frames, not {len(frames)}"
        raise error("bad_request", text, f"nothing was done; {form}")
    return operation


def decode_request(operation: Operation, frames: Sequence[bytes]) -> SimpleRequest:
    """Decode a request of an operation that `operation_of` has returned; not its topic.

    The defaults of numbers of a read that are missing at the end are AFTER 0, LIMIT 100, WAIT_MS 0; those of
    a group.fetch LIMIT 1, WAIT_MS 0, and LEASE_MS 0, which is the lease of the group. Raises ``bad_request``,
    ``bad_pointer``, ``bad_topic``, ``bad_group`` or ``too_large``.
    """
    match operation:
        case Operation.PUBLISH:
            values = frames[2:]
            if len(values) > PUBLISH_VALUES_MAX:
                raise error("too_large", f"{len(values)} values in one publish, at most {PUBLISH_VALUES_MAX}")
            return SimplePublish(values)
        case Operation.FETCH:
            numbers: dict[str, Any] = _numbers(_NUMBERS, frames[2:])
            return Fetch(**{"records_max": 100, "bytes_max": READ_BYTES, **numbers})
        case Operation.GROUP_FETCH:
            given = {"records_max": 1, "bytes_max": READ_BYTES, **_numbers(_GROUP_NUMBERS, frames[3:])}
            return GroupFetch(decode_group(frames[2]), "", **given)
        case Operation.GROUP_SETTLE:
            return _decode_settle(frames)
        case Operation.LIST:
            return ListTopics(after=decode_topic(frames[1]) if len(frames) > 1 and frames[1] else "")
        case _:
            return Ping()


def encode_ok(*numbers: int, rest: Iterable[bytes] = ()) -> list[bytes]:
    """Encode a reply: numbers as decimals, then the frames of `rest`."""
    return [b"ok", *(b"%d" % number for number in numbers), *rest]


def encode_records(pointers: Iterable[int], values: Iterable[bytes]) -> list[bytes]:
    """Encode records as the end of a read's reply: POINTER VALUE POINTER VALUE ..."""
    frames: list[bytes] = []
    for pointer, value in zip(pointers, values, strict=False):
        frames += (b"%d" % pointer, value)
    return frames


def encode_error(problem: QuothError) -> list[bytes]:
    """Encode an error."""
    text = problem.text + (f" ({problem.hint})" if problem.hint else "")
    return [b"error", problem.code.encode(), text.encode("utf-8", "replace")]


def encode_damaged(text: str, following: int) -> list[bytes]:
    """Encode the error of a read that reaches damaged records. following: the cursor behind all of them."""
    problem = error("damaged", text, f"read on after {following} to step over it")
    return [*encode_error(problem), b"%d" % following]


def encode_leased(lease: SimpleLease, records: Iterable[bytes]) -> list[bytes]:
    """Encode the reply to a group.fetch. records: POINTER ATTEMPTS VALUE of each."""
    return [b"ok", encode_lease(lease), *records]


def encode_damaged_lease(lease: SimpleLease, pointers: Sequence[int]) -> list[bytes]:
    """Encode the error of a group.fetch that has found damaged records and no other ones."""
    text = f"{len(pointers)} records from {pointers[0]} to {pointers[-1]} do not check"
    problem = error("damaged", text, "settle them by group.term or group.ack")
    return [*encode_error(problem), encode_lease(lease), *(b"%d" % pointer for pointer in pointers)]


def count_settled(frames: Sequence[bytes], reply: GroupSettled) -> int:
    """Return how many of the pointers in a request have had an effect."""
    if _SETTLES[frames[0]] is Settle.ACK:
        return reply.records
    return len(set(map(int, frames[4:]))) - sum(last - first + 1 for first, last in reply.lost)


def _decode_settle(frames: Sequence[bytes]) -> SimpleSettle:
    """Decode a request of which the fourth frame is a lease, and all behind it are pointers."""
    kind, group, lease = _SETTLES[frames[0]], decode_group(frames[2]), decode_lease(frames[3])
    if len(frames) - 4 > LEASED_MAX:
        raise error("too_large", f"{len(frames) - 4} pointers in one request, at most {LEASED_MAX}")
    if kind is not Settle.ACK and not lease.token:
        raise error("bad_request", f"LEASE is {shown_frame(frames[3])}, of a reply without leased records")
    pointers = sorted({_decimal("POINTER", _SETTLED, frame) for frame in frames[4:]})
    more = lease.lease_ms if kind is Settle.EXTEND else 0
    ranges = ranges_of(pointers) if kind is Settle.ACK else [(pointer, pointer) for pointer in pointers]
    rows = [Settlement(kind, first, last, lease.token, more) for first, last in ranges]
    return SimpleSettle(GroupSettle(group, len(rows), lease.generation), rows)


def ranges_of(pointers: Iterable[int]) -> list[tuple[int, int]]:
    """Join pointers that follow each other: a range costs the broker as much as a pointer."""
    ranges: list[tuple[int, int]] = []
    for pointer in pointers:
        if ranges and pointer == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], pointer
        else:
            ranges.append((pointer, pointer))
    return ranges


def encode_lease(lease: SimpleLease) -> bytes:
    """Encode a lease as a client gets it, and gives it back."""
    return b"%d-%d-%d" % lease


def decode_lease(frame: bytes) -> SimpleLease:
    """Decode a lease that a client gives back. Raises ``bad_request``."""
    if not _LEASE.fullmatch(frame):
        text = f"LEASE is {shown_frame(frame)}: it must be the frame behind ok in a reply to group.fetch"
        raise error("bad_request", text, "nothing was done")
    lease = SimpleLease(*map(int, frame.split(b"-")))
    if lease.lease_ms > LEASE_MS_MAX or max(lease) >= 2**64:
        raise error("bad_request", f"LEASE is {shown_frame(frame)}, of no reply", "nothing was done")
    return lease


def _numbers(names: Sequence[tuple[str, str, Range]], frames: Sequence[bytes]) -> dict[str, int]:
    """Decode the numbers at the end of a request, as far as they are there, by their fields."""
    found = zip(names, frames, strict=False)
    return {field: _decimal(name, bounds, frame) for (name, field, bounds), frame in found}


def _decimal(name: str, bounds: Range, frame: bytes) -> int:
    """Decode a number of a request. Raises the same codes as `msgpack_schema` for one out of range."""
    digits = frame.removeprefix(b"-")
    if not digits.isdigit():
        text = f"{name} is {shown_frame(frame)}: it must be an integer {bounds}, in decimal digits"
        raise error("bad_request", text, "nothing was done")
    number = int(digits.lstrip(b"0")[: _DIGITS_MAX + 1] or b"0")
    is_negative = len(digits) < len(frame)
    if is_negative or not bounds.low <= number <= bounds.high:
        written = bytes(frame[:SHOWN_MAX]).decode()
        raise bounds.error_for(name, -number if is_negative else number, written)
    return number
