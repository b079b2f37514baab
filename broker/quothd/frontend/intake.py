"""Turns the frames of a message into a request, or into the error for its client.

It reads the operation and the topic of a request, and no record.
"""

from __future__ import annotations

from functools import lru_cache

from quothd.frontend.router import FRAME_BYTES, Frame
from quothd.requests.pending_request import BinaryResponder, PendingRequest, Responder, TextResponder
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec, text_codec
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.messages import WITHOUT_TOPIC
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


class RefusedRequest(Exception):
    """The request cannot be read. frames: the answer. has_envelope: the client may understand it."""

    def __init__(self, frames: Frames, *, has_envelope: bool = True) -> None:
        self.frames = frames
        self.has_envelope = has_envelope


def open_request(frames: list[Frame]) -> PendingRequest:
    """Return the request in a message; its topic is "" for one about the broker.

    Raises `RefusedRequest`.
    """
    if len(frames) > 1 and not frames[1]:
        route, body = [bytes(frames[0]), b""], frames[2:]
    else:
        route, body = _split_envelope(frames)
    responder: Responder
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
    return PendingRequest(responder, responder.operation, name, sum(map(len, body)) + FRAME_BYTES * len(body))


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
