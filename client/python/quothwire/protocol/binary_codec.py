"""The fast protocol: requests and replies as ZeroMQ frames behind the empty delimiter.

    request    header  topic      arguments  [payload]
    reply      header  arguments  [payload]
    error      header  arguments {code, text, hint}

    header, 16 bytes, little-endian
    0   magic D1 51        2     no text begins with it: a simple request never looks like a fast one
    2   version (1)        1
    3   operation          1
    4   status             1     0 request, 1 ok, 2 error
    5   zeros              3
    8   correlation id     8     chosen by the client, repeated in the reply

Magic, version and correlation id have these places in every version, so that each side can answer that it
speaks another one.

Arguments are one msgpack map, the topic is its UTF-8 name (empty where an operation has none), the payload
is a batch (publish, stage), the parts of a transaction (publish_staged) or stored batches (fetch).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack

from quothwire.batch import Bytes
from quothwire.errors import QuothError, RequestError, error
from quothwire.native import compiled
from quothwire.protocol import group_messages, metric_messages, msgpack_schema
from quothwire.protocol.messages import REQUESTS, WITH_PAYLOAD, WITHOUT_TOPIC, Operation, Reply, Request
from quothwire.protocol.value import Value

VERSION = 1
MAGIC = b"\xd1Q"
HEADER_BYTES = 16
FRAMES_MAX = 4
PUBLISH_BYTES_MAX = 64
"""Arguments of a publish above it are not cached."""
ERROR_CHARACTERS_MAX = 1_000
"""An error may quote a whole request, and its reply must stay within the limits of a client."""

_HEADER = struct.Struct("<2sBBB3sQ")
_REQUEST, _OK, _ERROR = 0, 1, 2
_ZEROS = bytes(3)
assert group_messages.GroupFetch.operation in REQUESTS, "every operation has a request"
assert metric_messages.GetMetrics.operation in REQUESTS, "every operation has a request"
_OPERATIONS = {int(operation): operation for operation in Operation}
_NO_ARGUMENTS = b"\x80"
_FRAMES_HINT = (
    "nothing was done; a header, a topic or an empty frame, arguments, a payload where there is one"
)

Frames = Sequence[Bytes]

_new = tuple.__new__
"""Makes a named tuple of a row, in half the time of a call of its class."""
_compiled = compiled("quothwire._native.codec")


class Call(NamedTuple):
    """A request with its header decoded and its arguments still encoded."""

    operation: Operation
    correlation: int
    topic: bytes
    arguments: bytes
    payload: Bytes


class Answer(NamedTuple):
    """A decoded reply: a message with its payload, or an error."""

    correlation: int
    reply: Reply | QuothError
    payload: Bytes


@_compiled
def encode_request(
    request: Request, correlation: int, topic: str = "", payload: bytes | None = None
) -> list[bytes]:
    """Encode a request as frames. The broker checks the topic.

    Raises ``bad_request`` for a value that cannot be encoded.
    """
    header = _HEADER.pack(MAGIC, VERSION, request.operation, _REQUEST, _ZEROS, correlation)
    frames = [header, topic.encode("utf-8", "surrogatepass"), msgpack_schema.pack(request)]
    if payload is not None:
        frames.append(payload)
    return frames


def is_fast(frames: Frames) -> bool:
    """True for a request in the fast protocol."""
    return bool(frames) and frames[0][:2] == MAGIC


def correlation_of(frames: Frames) -> int:
    """Return the correlation id of a request that may be wrong otherwise; 0 if it cannot be read."""
    return _HEADER.unpack(frames[0])[-1] if frames and len(frames[0]) == HEADER_BYTES else 0


@_compiled
def decode_call(frames: Frames) -> Call:
    """Read a request's header. Raises ``bad_request``, ``unsupported_version`` or ``unknown_operation``."""
    operation, _, correlation = _decode_header(frames, (_REQUEST,))
    frames_max = FRAMES_MAX if operation in WITH_PAYLOAD else FRAMES_MAX - 1
    if not 2 <= len(frames) <= frames_max:
        name = operation.name.lower()
        raise error("bad_request", f"{name} has 2 to {frames_max} frames, not {len(frames)}", _FRAMES_HINT)
    if frames[1] and operation in WITHOUT_TOPIC:
        raise error("bad_request", f"{operation.name.lower()} has no topic", _FRAMES_HINT)
    arguments = bytes(frames[2]) if len(frames) > 2 else _NO_ARGUMENTS
    payload = frames[3] if len(frames) > 3 else b""
    return _new(Call, (operation, correlation, bytes(frames[1]), arguments, payload))


@_compiled
def decode_arguments(call: Call) -> Any:
    """Read the arguments of a call as its `Request`, or raise ``bad_request``."""
    if call.operation is Operation.PUBLISH and len(call.arguments) <= PUBLISH_BYTES_MAX:
        return _publish_of(call.arguments)
    return msgpack_schema.unpack(REQUESTS[call.operation], call.arguments, strict=True)


@lru_cache(maxsize=16)
def _publish_of(arguments: bytes) -> Any:
    """Decode the arguments of a publish, which are the same few for all publishes of a client."""
    return msgpack_schema.unpack(REQUESTS[Operation.PUBLISH], arguments, strict=True)


@_compiled
def encode_reply(operation: Operation, correlation: int, reply: Reply, payload: Bytes | None) -> list[Bytes]:
    """Encode a reply as frames. Text that is not Unicode, as a directory's name may be, is escaped."""
    header = _HEADER.pack(MAGIC, VERSION, operation, _OK, _ZEROS, correlation)
    frames: list[Bytes] = [header, msgpack_schema.pack(reply, "backslashreplace")]
    if payload is not None:
        frames.append(payload)
    return frames


def encode_error(operation: int, correlation: int, problem: QuothError) -> list[bytes]:
    """Encode an error as frames."""
    header = _HEADER.pack(MAGIC, VERSION, operation, _ERROR, _ZEROS, correlation)
    text, hint = problem.text[:ERROR_CHARACTERS_MAX], problem.hint[:ERROR_CHARACTERS_MAX]
    carried = {"code": problem.code, "text": text, "hint": hint}
    return [header, msgpack.packb(carried, unicode_errors="replace")]


@_compiled
def decode_answer(frames: Frames) -> Answer:
    """Decode a reply. A reply of another version is an answer with the error ``unsupported_version``.

    Raises ``bad_request`` or ``unknown_operation`` for frames that are no reply.
    """
    try:
        operation, status, correlation = _decode_header(frames, (_OK, _ERROR))
    except RequestError as problem:
        if problem.code != "unsupported_version":
            raise
        return Answer(correlation_of(frames), problem, b"")
    if not 2 <= len(frames) <= 3:
        raise error("bad_request", f"a reply has 2 or 3 frames, not {len(frames)}")
    payload = frames[2] if len(frames) > 2 else b""
    if status == _ERROR:
        return Answer(correlation, _decode_error(bytes(frames[1])), payload)
    reply = msgpack_schema.unpack(REQUESTS[operation].reply, bytes(frames[1]), strict=False)
    return Answer(correlation, reply, payload)


def _decode_header(frames: Frames, statuses: tuple[int, ...]) -> tuple[Operation, int, int]:
    if not frames or len(frames[0]) != HEADER_BYTES:
        raise error("bad_request", "the first frame is no header of 16 bytes")
    magic, version, number, status, zeros, correlation = _HEADER.unpack(frames[0])
    if magic != MAGIC:
        raise error("bad_request", "the first frame is no header of this protocol")
    if version != VERSION:
        raise error("unsupported_version", f"version {version} of the protocol, this side speaks {VERSION}")
    if zeros != _ZEROS or status not in statuses:
        raise error("bad_request", "the first frame is no header of a request or a reply")
    operation = _OPERATIONS.get(number)
    if operation is None:
        raise error("unknown_operation", f"there is no operation {number}")
    return operation, status, correlation


def _decode_error(arguments: bytes) -> QuothError:
    carried = msgpack_schema.unpack(_CarriedError, arguments, strict=False)
    return error(carried.code, carried.text, carried.hint)


class _CarriedError(Value):
    code: str
    text: str
    hint: str
