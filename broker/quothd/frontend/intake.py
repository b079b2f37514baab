"""Turns the frames of a message into a request, or into the answer that says why it is none.

It reads of a request what the broker needs to pass it on, the operation and the topic, and no record.
"""

from __future__ import annotations

from quothd.frontend.reply_queue import FRAME_BYTES
from quothd.frontend.router import Frame
from quothd.requests.pending_request import PendingRequest
from quothd.requests.responder import BinaryResponder, Responder, TextResponder
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec, text_codec
from quothwire.protocol.binary_codec import Frames
from quothwire.protocol.operations import WITHOUT_TOPIC
from quothwire.topic import decode_topic

ENVELOPE_FRAMES_MAX = 8
ENVELOPE_BYTES_MAX = 256

_NO_DELIMITER = error(
    "bad_request",
    "the request does not begin behind an empty frame",
    "a DEALER has to send an empty frame before the request, a REQ does it by itself; "
    f"at most {ENVELOPE_FRAMES_MAX} frames of {ENVELOPE_BYTES_MAX} bytes may stand before it",
)


class Unanswerable(Exception):
    """The message has no envelope: `frames` tell the connection so, which is all that can be done."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames


class Refused(Exception):
    """The request cannot be read: `frames` are the answer."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames


def open_request(frames: list[Frame]) -> PendingRequest:
    """Return the request in a message; its topic is "" for one about the broker.

    Raises `Unanswerable` or `Refused`.
    """
    if len(frames) > 1 and not frames[1]:
        route, body = [bytes(frames[0]), b""], frames[2:]
    else:
        route, body = _split_envelope(frames)
    try:
        responder, topic = _responder(route, body)
    except QuothError as problem:
        raise Refused(_refusal(route, body, problem)) from None
    operation = responder.operation
    size = sum(map(len, body)) + FRAME_BYTES * len(body)
    try:
        name = "" if operation in WITHOUT_TOPIC else decode_topic(topic)
    except QuothError as problem:
        raise Refused(responder.refuse(problem)) from None
    return PendingRequest(responder, operation, name, size)


def _split_envelope(frames: list[Frame]) -> tuple[list[bytes], list[Frame]]:
    """The route up to and with the empty delimiter, and what follows it."""
    for at, frame in enumerate(frames[: ENVELOPE_FRAMES_MAX + 2]):  # the ROUTER's id, theirs, the delimiter
        if not frame:
            return list(map(bytes, frames[: at + 1])), frames[at + 1 :]
        if len(frame) > ENVELOPE_BYTES_MAX:
            break
    raise Unanswerable([bytes(frames[0]), b"", *text_codec.encode_error(_NO_DELIMITER)])


def _responder(route: list[bytes], body: list[Frame]) -> tuple[Responder, bytes]:
    if binary_codec.is_fast(body):
        call = binary_codec.decode_call(body)
        return BinaryResponder(route, call), call.topic
    texts = list(map(bytes, body))
    operation = text_codec.operation_of(texts)
    return TextResponder(route, texts, operation), texts[1] if len(texts) > 1 else b""


def _refusal(route: list[bytes], body: list[Frame], problem: QuothError) -> Frames:
    """The error of a request that cannot be read, in the protocol that it comes closest to."""
    if binary_codec.is_fast(body):
        operation = body[0][3] if len(body[0]) > 3 else 0
        return route + binary_codec.encode_error(operation, binary_codec.correlation_of(body), problem)
    return route + text_codec.encode_error(problem)
