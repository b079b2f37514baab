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
from quothwire.protocol.messages import POINTERS, WAIT_MS_MAX, Operation
from quothwire.protocol.value import Range
from quothwire.topic import decode_topic

READ_LIMIT_MAX = 10_000
"""Each record takes two frames. A larger reply costs more than a second request."""
PUBLISH_VALUES_MAX = 10_000

OPERATIONS: dict[bytes, Operation] = {
    b"ping": Operation.PING,
    b"publish": Operation.PUBLISH,
    b"read": Operation.FETCH,
    b"topics": Operation.LIST,
}
_SHAPES: dict[Operation, tuple[int, float, str]] = {
    Operation.PING: (1, 1, "ping"),
    Operation.PUBLISH: (3, inf, "publish TOPIC VALUE [VALUE ...]"),
    Operation.FETCH: (2, 5, "read TOPIC [AFTER [LIMIT [WAIT_MS]]]"),
    Operation.LIST: (1, 2, "topics [AFTER]"),
}
"""The least and the largest number of frames of a request, and its form."""
_NUMBERS: dict[str, tuple[Range, int]] = {
    "AFTER": (POINTERS, 0),
    "LIMIT": (Range(1, READ_LIMIT_MAX), 100),
    "WAIT_MS": (Range(0, WAIT_MS_MAX), 0),
}
"""The numbers of a read in their order, with bounds and default."""
_DIGITS_MAX = 20
"""Digits of a number of 64 bits."""


class SimplePublish(NamedTuple):
    """Values to append as consecutive records."""

    values: Sequence[bytes]


class SimpleRead(NamedTuple):
    """At most `limit` records with pointers above `after`. wait_ms: how long to wait for the first."""

    after: int
    limit: int
    wait_ms: int


def operation_of(frames: Sequence[bytes]) -> Operation:
    """Return the operation of a request. Raises ``bad_request`` or ``unknown_operation``."""
    if not frames:
        raise error("bad_request", "an empty request")
    operation = OPERATIONS.get(frames[0])
    if operation is None:
        known = ", ".join(name.decode() for name in OPERATIONS)
        text = f"the operation is {shown_frame(frames[0])}"
        raise error("unknown_operation", text, f"the simple protocol knows {known}")
    low, high, shape = _SHAPES[operation]
    if not low <= len(frames) <= high:
        count = f"{low}" if low == high else f"{low} or more" if high == inf else f"{low} to {high}"
        text = f"{frames[0].decode()} has {count} frames, not {len(frames)}"
        raise error("bad_request", text, f"nothing was done; {shape}")
    return operation


def decode_publish(frames: Sequence[bytes]) -> SimplePublish:
    """Decode a publish request, or raise ``too_large``."""
    values = frames[2:]
    if len(values) > PUBLISH_VALUES_MAX:
        raise error("too_large", f"{len(values)} values in one publish, at most {PUBLISH_VALUES_MAX}")
    return SimplePublish(values)


def decode_read(frames: Sequence[bytes]) -> SimpleRead:
    """Decode a read request, or raise ``bad_request``, ``bad_pointer`` or ``too_large``.

    The defaults of numbers that are missing at the end are AFTER 0, LIMIT 100, WAIT_MS 0.
    """
    given = [_decimal(name, frame) for name, frame in zip(_NUMBERS, frames[2:], strict=False)]
    defaults = [default for _, default in _NUMBERS.values()]
    return SimpleRead(*given, *defaults[len(given) :])


def decode_topics(frames: Sequence[bytes]) -> str:
    """Decode a topics request: return the name after which the listing goes on, empty for the first names."""
    return decode_topic(frames[1]) if len(frames) > 1 and frames[1] else ""


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


def _decimal(name: str, frame: bytes) -> int:
    """Decode a number of a request. Raises the same codes as `msgpack_schema` for one out of range."""
    bounds = _NUMBERS[name][0]
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
