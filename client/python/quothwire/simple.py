"""The simple protocol: text frames that any ZeroMQ binding can say by hand.

    request                                        reply
    "ping"                                         "ok" TIME
    "publish" TOPIC VALUE [VALUE ...]              "ok" FIRST LAST
    "read" TOPIC AFTER LIMIT WAIT_MS               "ok" NEXT [POINTER VALUE ...]
    "topics" [AFTER]                               "ok" [TOPIC ...]
    anything that goes wrong                       "error" CODE TEXT
    a "read" that meets what is damaged            "error" "damaged" TEXT NEXT

All stand behind the empty delimiter that REQ adds by itself and DEALER sends. Numbers are decimals in ASCII.
LIMIT is exact here. Frames before the delimiter come back with the reply, so a DEALER that pipelines can put
an id of its own there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quothwire.errors import QuothError, error
from quothwire.message import WAIT_MS_MAX, Operation
from quothwire.pointer import check_pointer
from quothwire.topic import decode_topic

READ_LIMIT_MAX = 10_000
"""Every record is two frames of its own: a larger reply costs more than a second request."""
PUBLISH_VALUES_MAX = 10_000

OPERATIONS: dict[bytes, Operation] = {
    b"ping": Operation.PING,
    b"publish": Operation.PUBLISH,
    b"read": Operation.FETCH,
    b"topics": Operation.LIST,
}


class SimplePublish(NamedTuple):
    """Values to append as consecutive records."""

    values: Sequence[bytes]


class SimpleRead(NamedTuple):
    """At most `limit` records with pointers above `after`, waiting up to `wait_ms` for the first."""

    after: int
    limit: int
    wait_ms: int


def operation_of(frames: Sequence[bytes]) -> Operation:
    """Which operation does this request ask for? Raises ``bad_request`` or ``unknown_operation``."""
    if not frames:
        raise error("bad_request", "an empty request")
    operation = OPERATIONS.get(frames[0])
    if operation is None:
        known = ", ".join(name.decode() for name in OPERATIONS)
        raise error("unknown_operation", f"{frames[0][:40]!r}", f"the simple protocol knows {known}")
    if operation in (Operation.PUBLISH, Operation.FETCH) and len(frames) < 2:
        raise error("bad_request", f"{frames[0].decode()} needs a topic")
    return operation


def decode_publish(frames: Sequence[bytes]) -> SimplePublish:
    """Read a publish request, or raise ``bad_request`` or ``too_large``."""
    values = frames[2:]
    if not values:
        raise error("bad_request", "publish needs at least one value")
    if len(values) > PUBLISH_VALUES_MAX:
        raise error("too_large", f"{len(values)} values in one publish, at most {PUBLISH_VALUES_MAX}")
    return SimplePublish(values)


def decode_read(frames: Sequence[bytes]) -> SimpleRead:
    """Read a read request, or raise ``bad_request`` or ``bad_pointer``.

    What is left away at the end is AFTER 0, LIMIT 100, WAIT_MS 0.
    """
    if len(frames) > 5:
        raise error("bad_request", "read TOPIC AFTER LIMIT WAIT_MS")
    numbers = [_decimal(frame) for frame in frames[2:]]
    after, limit, wait_ms = numbers + [0, 100, 0][len(numbers) :]
    if not 1 <= limit <= READ_LIMIT_MAX or wait_ms > WAIT_MS_MAX:
        raise error("bad_request", f"LIMIT is 1 to {READ_LIMIT_MAX}, WAIT_MS 0 to {WAIT_MS_MAX}")
    return SimpleRead(check_pointer(after), limit, wait_ms)


def decode_topics(frames: Sequence[bytes]) -> str:
    """Read a topics request: the name that the listing goes on after, empty for the first names."""
    return decode_topic(frames[1]) if len(frames) > 1 and frames[1] else ""


def encode_ok(*numbers: int, rest: Iterable[bytes] = ()) -> list[bytes]:
    """Encode a reply: numbers as decimals, then frames as they are."""
    return [b"ok", *(b"%d" % number for number in numbers), *rest]


def encode_records(pointers: Iterable[int], values: Iterable[bytes]) -> list[bytes]:
    """Records as the tail of a read's reply: POINTER VALUE POINTER VALUE ..."""
    frames: list[bytes] = []
    for pointer, value in zip(pointers, values, strict=False):
        frames += (b"%d" % pointer, value)
    return frames


def encode_error(problem: QuothError) -> list[bytes]:
    """Encode an error."""
    text = problem.text + (f" ({problem.hint})" if problem.hint else "")
    return [b"error", problem.code.encode(), text.encode("utf-8", "replace")]


def encode_damaged(text: str, following: int) -> list[bytes]:
    """Encode the error of a read that meets damaged records. following: the cursor behind all of them."""
    problem = error("damaged", text, f"read on after {following} to step over it")
    return [*encode_error(problem), b"%d" % following]


def _decimal(frame: bytes) -> int:
    if not (1 <= len(frame) <= 20 and frame.isdigit()):
        raise error("bad_request", f"{frame[:40]!r} is no decimal number")
    return int(frame)
