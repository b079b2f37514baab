"""The simple protocol: text frames that can be written by hand in any ZeroMQ binding.

    request                                        reply
    "ping"                                         "ok" TIME
    "publish" TOPIC VALUE [VALUE ...]              "ok" FIRST LAST
    "read" TOPIC [AFTER [LIMIT [WAIT_MS]]]         "ok" NEXT [POINTER VALUE ...]
    "topics" [AFTER]                               "ok" [TOPIC ...]
    anything that goes wrong                       "error" CODE TEXT
    a "read" that meets what is damaged            "error" "damaged" TEXT NEXT

All of them follow the empty delimiter, which REQ adds and a DEALER sends. Numbers are ASCII decimals. LIMIT
is exact here. The reply has the frames before the delimiter again, so that a DEALER that pipelines can put an
id of its own there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from quothwire.errors import SHOWN_MAX, QuothError, error, shown_frame
from quothwire.protocol.messages import POINTERS, WAIT_MS_MAX, Fetch, ListTopics, Operation, Ping, Request
from quothwire.protocol.value import Range
from quothwire.topic import decode_topic

READ_LIMIT_MAX = 10_000
"""Each record takes two frames. A larger reply costs more than a second request."""
READ_BYTES = 2**20
"""A read returns records of so many stored bytes."""
PUBLISH_VALUES_MAX = 10_000

OPERATIONS: dict[bytes, tuple[Operation, int, float, str]] = {
    b"ping": (Operation.PING, 1, 1, "ping"),
    b"publish": (Operation.PUBLISH, 3, inf, "publish TOPIC VALUE [VALUE ...]"),
    b"read": (Operation.FETCH, 2, 5, "read TOPIC [AFTER [LIMIT [WAIT_MS]]]"),
    b"topics": (Operation.LIST, 1, 2, "topics [AFTER]"),
}
"""By the first frame: the operation, the least and the largest number of frames, and the form."""
_NUMBERS = (
    ("AFTER", "after", POINTERS),
    ("LIMIT", "records_max", Range(1, READ_LIMIT_MAX)),
    ("WAIT_MS", "wait_ms", Range(0, WAIT_MS_MAX)),
)
"""The numbers of a read in their order, with the field of `Fetch` and its bounds here."""
_DIGITS_MAX = 20
"""Digits of a number of 64 bits."""


class SimplePublish(NamedTuple):
    """Values to append as consecutive records."""

    values: Sequence[bytes]


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


def decode_request(operation: Operation, frames: Sequence[bytes]) -> SimplePublish | Request:
    """Decode a request of an operation that `operation_of` has returned; not its topic.

    The defaults of numbers of a read that are missing at the end are AFTER 0, LIMIT 100, WAIT_MS 0. Raises
    ``bad_request``, ``bad_pointer``, ``bad_topic`` or ``too_large``.
    """
    match operation:
        case Operation.PUBLISH:
            values = frames[2:]
            if len(values) > PUBLISH_VALUES_MAX:
                raise error("too_large", f"{len(values)} values in one publish, at most {PUBLISH_VALUES_MAX}")
            return SimplePublish(values)
        case Operation.FETCH:
            numbers = zip(_NUMBERS, frames[2:], strict=False)
            given = {field: _decimal(name, bounds, frame) for (name, field, bounds), frame in numbers}
            return Fetch(**{"records_max": 100, "bytes_max": READ_BYTES, **given})
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
