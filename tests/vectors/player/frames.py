"""Requests and answers of the fast protocol, as client/PROTOCOL.md draws them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from player import batches
from player.deviation import Deviation

HEADER = struct.Struct("<2sBBB3sQ")
MAGIC = b"\xd1\x51"
OK, ERROR = 1, 2
POINTER_MAX, WIDE = 2**56 - 1, 2**64 - 1


class Field(NamedTuple):
    """A field of a request: its type, its default, None if it is required, and the range of a number."""

    kind: type
    default: Any = None
    least: int = 0
    most: int = WIDE


TEXT = Field(str, "")
POINTER = Field(int, 0, 0, POINTER_MAX)
APPLICATION = {"application": Field(str), "version": Field(int, None, 0, 2**62)}
GROUP = {"group": Field(str)}
LEASE_MS_MAX = 43_200_000
AFTER_NAME = {"after": TEXT, "limit": Field(int, 1000, 0, 1000)}
FIELDS: dict[str, dict[str, Field]] = {
    "hello": {"client": TEXT},
    "ping": {},
    "publish": {"durability": TEXT},
    "fetch": {
        "after": POINTER,
        "ordinal": Field(int, -1, -1, 2**63 - 1),
        "records_max": Field(int, 2**32, 1, 2**32),
        "bytes_max": Field(int, 2**20, 1, 2**32),
        "wait_ms": Field(int, 0, 0, 600_000),
        "until": POINTER,
        "durability": TEXT,
    },
    "list": AFTER_NAME,
    "describe": {},
    "create": {"settings": Field(dict, {})},
    "update": {"settings": Field(dict, {})},
    "delete": {"log": Field(int, 0)},
    "trim": {"before": Field(int, None, 0, POINTER_MAX)},
    "roll": {},
    "status": AFTER_NAME,
    "advance": {
        "after": POINTER,
        "records_max": Field(int, 2**63 - 1, 1, 2**63 - 1),
        "bytes_max": Field(int, 2**63 - 1, 1, 2**63 - 1),
    },
    "split": {
        "after": POINTER,
        "until": Field(int, POINTER_MAX, 0, POINTER_MAX),
        "parts": Field(int, 1, 1, 10_000),
    },
    "count": {"after": POINTER, "until": Field(int, POINTER_MAX, 0, POINTER_MAX)},
    "stage": {
        **APPLICATION,
        "part": Field(int, None, 0, 999_999),
        "attempt": Field(int),
        "number": Field(int, 0, 0, 16_383),
    },
    "publish_staged": {
        **APPLICATION,
        "parts": Field(int, None, 0, 16_384),
        "newest": Field(int, -2, -2, 2**62),
    },
    "abort": APPLICATION,
    "transaction": APPLICATION,
    "open_group": {**GROUP, "start": Field(int, 0, -1, POINTER_MAX), "settings": Field(dict, {})},
    "group_fetch": {
        **GROUP,
        "member": TEXT,
        "records_max": Field(int, 100, 1, 2**32),
        "bytes_max": Field(int, 2**20, 1, 2**32),
        "wait_ms": Field(int, 0, 0, 600_000),
        "lease_ms": Field(int, 0, 0, LEASE_MS_MAX),
    },
    "group_settle": {
        **GROUP,
        "rows": Field(int, None, 0, 4_096),
        "generation": Field(int, 0),
        "reason": TEXT,
    },
    "describe_group": GROUP,
    "list_groups": {"after": TEXT, "limit": Field(int, 100, 1, 100)},
    "update_group": {**GROUP, "settings": Field(dict, {}), "paused": Field(int, -1, -1, 1)},
    "seek_group": {**GROUP, "after": Field(int, None, -1, POINTER_MAX)},
    "delete_group": GROUP,
    "list_pending": {**GROUP, "after": POINTER, "limit": Field(int, 1000, 1, 1000)},
    "commit_cursor": {
        **GROUP,
        "pointer": Field(int, None, 0, POINTER_MAX),
        "generation": Field(int, 0),
    },
    "metrics": {"after": TEXT, "since": Field(int, 0), "limit": Field(int, 100, 0, 1000)},
}
"""The fields of each operation, in the order of their numbers, which begin at 1."""
OPERATIONS = tuple(FIELDS)
WITH_BATCH = frozenset(("publish", "stage"))
COUNTED = {"publish_staged": "parts", "group_settle": "rows"}
"""The operations whose payload is a list, and the field that has its length."""
PART = struct.Struct("<4Q")
ROW = struct.Struct("<B7s4Q")
ACK, NACK, EXTEND, TERM, RELEASE = 1, 2, 3, 4, 5
WITHOUT_TOPIC = frozenset(("hello", "ping", "list", "status", "metrics"))


@dataclass(frozen=True)
class Request:
    """A request of the client.

    envelope: the frames to put before an answer, the empty one included. batch: the one of a publish or a
    stage. parts: those of a publish_staged. rows: those of a group_settle.
    """

    envelope: list[bytes]
    correlation: int
    operation: str
    topic: str
    arguments: dict[str, Any]
    payload: bytes | None
    batch: dict[str, Any] | None
    parts: list[dict[str, Any]]
    rows: list[dict[str, Any]]

    def repeats(self, other: Request) -> bool:
        """True for another copy of the same request, whatever its correlation id is."""
        return (self.operation, self.topic, self.arguments, self.payload) == (
            other.operation,
            other.topic,
            other.arguments,
            other.payload,
        )

    def __str__(self) -> str:
        more = self.batch or self.parts or self.rows or ""
        return f"{self.operation} {self.topic} {self.arguments} {more}".replace("  ", " ").strip()


def decode_request(message: list[bytes]) -> Request:
    """Decode a message of a ROUTER. Raises `Deviation` for a wrong request."""
    if b"" not in message[1:10]:
        raise Deviation("a message without an empty frame before the request")
    place = message.index(b"", 1) + 1
    envelope, frames = message[:place], message[place:]
    correlation, operation = _decode_header(frames[0] if frames else b"")
    topic = _decode_topic(operation, frames)
    payload = frames[3] if len(frames) == 4 else None
    arguments = _decode_arguments(operation, frames[2] if len(frames) > 2 else b"\x80")
    _check_payload(operation, arguments, frames)
    batch = batches.decode(payload) if payload is not None and operation in WITH_BATCH else None
    parts = _decode_parts(payload or b"", arguments) if operation == "publish_staged" else []
    rows = _decode_rows(payload or b"", arguments) if operation == "group_settle" else []
    return Request(envelope, correlation, operation, topic, arguments, payload, batch, parts, rows)


def _decode_header(frame: bytes) -> tuple[int, str]:
    if len(frame) != HEADER.size:
        raise Deviation(f"a request whose header has {len(frame)} bytes: {frame[:32].hex()}")
    magic, version, number, status, zeros, correlation = HEADER.unpack(frame)
    if (magic, version, status, zeros) != (MAGIC, 1, 0, bytes(3)) or not 1 <= number <= len(OPERATIONS):
        raise Deviation(f"a request with a wrong header: {frame.hex()}")
    return correlation, OPERATIONS[number - 1]


def _decode_topic(operation: str, frames: list[bytes]) -> str:
    if len(frames) < 2 or bool(frames[1]) != (operation not in WITHOUT_TOPIC):
        raise Deviation(f"{operation} without a topic, or with one where there is none")
    return frames[1].decode()


def _decode_arguments(operation: str, frame: bytes) -> dict[str, Any]:
    """Return all fields, those that were left out with their defaults."""
    try:
        given = msgpack.unpackb(frame)
    except (ValueError, msgpack.UnpackException):
        raise Deviation(f"{operation} with arguments that are no msgpack: {frame.hex()}") from None
    fields = FIELDS[operation]
    if not isinstance(given, dict) or not given.keys() <= fields.keys():
        names = ", ".join(fields) or "none"
        raise Deviation(f"{operation} with arguments {given!r}, where there are {names}")
    for name, field in fields.items():
        _check(operation, name, field, given.setdefault(name, field.default))
    return given


def _check(operation: str, name: str, field: Field, value: Any) -> None:
    if value is None:
        raise Deviation(f"{operation} without {name}")
    if type(value) is not field.kind or (type(value) is int and not field.least <= value <= field.most):
        raise Deviation(f"{operation} with {name} = {value!r}")


def _check_payload(operation: str, arguments: dict[str, Any], frames: list[bytes]) -> None:
    """Check that there is a fourth frame where there has to be one. It may be empty for an empty list."""
    length = arguments[COUNTED[operation]] if operation in COUNTED else 0
    least = 4 if operation in WITH_BATCH or length else 2
    most = 4 if operation in WITH_BATCH or operation in COUNTED else 3
    if not least <= len(frames) <= most:
        raise Deviation(f"{operation} of {len(frames)} frames")


def _decode_parts(payload: bytes, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    if len(payload) != PART.size * arguments["parts"]:
        raise Deviation(f"publish_staged of {arguments['parts']} parts with {len(payload)} bytes of them")
    names = ("part", "attempt", "batches", "records")
    return [dict(zip(names, part, strict=True)) for part in PART.iter_unpack(payload)]


def _decode_rows(payload: bytes, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Decode the rows of a settlement. Raises `Deviation` for a wrong one, and for rows that overlap."""
    if len(payload) != ROW.size * arguments["rows"]:
        raise Deviation(f"group_settle of {arguments['rows']} rows with {len(payload)} bytes of them")
    names = ("kind", "first", "last", "token", "milliseconds")
    rows = []
    before = 0
    for kind, zeros, *numbers in ROW.iter_unpack(payload):
        row = dict(zip(names, (kind, *numbers), strict=True))
        is_within = before < row["first"] <= row["last"] <= POINTER_MAX
        if not is_within or kind not in (ACK, NACK, EXTEND, TERM, RELEASE) or any(zeros):
            raise Deviation(f"a row of a settlement, behind the pointer {before}: {row}")
        if (kind != ACK and not row["token"]) or row["milliseconds"] > LEASE_MS_MAX:
            raise Deviation(f"a row of a settlement without a token, or with a wrong time: {row}")
        before = row["last"]
        rows.append(row)
    return rows


def encode_answer(
    request: Request, status: int, arguments: dict[str, Any], payload: bytes | None
) -> list[bytes]:
    """Return the whole message of an answer to a request."""
    number = OPERATIONS.index(request.operation) + 1
    header = HEADER.pack(MAGIC, 1, number, status, bytes(3), request.correlation)
    frames = [header, msgpack.packb(arguments)]
    return [*request.envelope, *frames, *([] if payload is None else [payload])]
