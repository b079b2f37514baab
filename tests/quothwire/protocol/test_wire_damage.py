"""Every codec with damaged bytes: it returns a value or raises the documented error, and nothing else.

The bytes of each codec are cut at every byte, changed at every byte, extended and replaced by noise. A value
that is still accepted is the same after it was written and read again. Damage under a checksum is never
accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kit.disk.logs import stamped
from quothwire import batch, pointer, topic
from quothwire.errors import QuothError, error
from quothwire.headers import decode_headers, encode_headers
from quothwire.protocol import announcement, binary_codec, msgpack_schema, text_codec
from quothwire.protocol.messages import REQUESTS, WITH_PAYLOAD, WITHOUT_TOPIC, CreateTopic, Operation
from quothwire.settings import TopicSettings

LOG = 0x1122_3344_5566_7788
NOW = 1_767_323_045_000_001

Labelled = Callable[[bytes], Iterator[tuple[str, bytes]]]
Settle = Callable[..., Any]

ABOVE = {"too_large", "bad_pointer"}
"""The codes of a request's number above its bounds."""


@dataclass(frozen=True)
class Codec:
    """Valid bytes, how to decode and encode them, and the codes of errors."""

    whole: bytes
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    codes: frozenset[str]
    checksummed: bool = False


def records() -> bytes:
    """Return a batch that has every column."""
    headers = [encode_headers({"trace": b"\x01"}), b"", b""]
    return batch.encode([b"value", b"", b"third"], [b"key", None, b""], headers, producer=7, sequence=8)


def stored() -> bytes:
    """Return the same batch as a log stores it."""
    return stamped(records(), LOG, NOW, 9)


def encode_batch(decoded: batch.DecodedBatch, log_id: int = 0) -> bytes:
    """Return the bytes of a decoded batch with its header as it was."""
    return batch.stamp(decoded.header, log_id) + batch.encode(*decoded[1:])[batch.HEADER_BYTES :]


def read_settings(packed: bytes) -> TopicSettings:
    """Return settings as the broker reads them from a request."""
    return TopicSettings().changed(msgpack_schema.unpack(CreateTopic, packed, strict=True).settings)


CODECS = {
    "batch": Codec(records(), batch.decode, encode_batch, frozenset({"bad_batch"}), True),
    "stored batch": Codec(
        stored(),
        lambda whole: batch.decode(whole, LOG),
        lambda decoded: encode_batch(decoded, LOG),
        frozenset({"bad_batch"}),
        True,
    ),
    "record headers": Codec(
        encode_headers({"trace": b"\x01\x02", "": b"", "é" * 20: bytes(40)}),
        decode_headers,
        encode_headers,
        frozenset({"damaged"}),
    ),
    "topic name": Codec("orders é €".encode(), topic.decode_topic, str.encode, frozenset({"bad_topic"})),
    "announcement": Codec(
        announcement.encode("orders é", NOW),
        announcement.decode,
        lambda found: announcement.encode(*found),
        frozenset({"bad_request", "bad_topic", "bad_pointer"}),
    ),
    **{
        f"pointer {text}": Codec(
            text.encode(),
            lambda typed: pointer.parse(typed.decode("latin-1"), NOW),
            lambda value: pointer.to_text(value).encode(),
            frozenset({"bad_pointer"}),
        )
        for text in ("1767323045000001", "2026-01-02T03:04:05.000001+01:00", "2026-01-02", "-1d3h2.5s", "now")
    },
    "topic settings": Codec(
        msgpack_schema.pack(CreateTopic(TopicSettings().to_map())),
        read_settings,
        lambda settings: msgpack_schema.pack(CreateTopic(settings.to_map())),
        frozenset({"bad_request", "bad_setting"}),
    ),
}


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_damaged_bytes_are_read_or_refused(codec: Codec, damaged: Labelled, settle: Settle) -> None:
    right = codec.decode(codec.whole)
    assert codec.decode(codec.encode(right)) == right
    for label, wrong in damaged(codec.whole):
        found = settle(codec.decode, wrong, codec.codes, label)
        if codec.checksummed:
            assert found is None, f"{label}: accepted {wrong!r}"
        elif found is not None:
            assert codec.decode(codec.encode(found)) == found, f"{label}: {wrong!r} is read as {found!r}"


def test_damaged_header_or_row_of_stored_batches_is_refused_or_cut_right(
    damaged: Labelled, settle: Settle
) -> None:
    """Only headers are checked here; a reader checks the bodies."""
    whole = stored()[: batch.HEADER_BYTES]
    right = batch.parse_header(whole, LOG)
    for label, wrong in damaged(whole):
        found = settle(lambda header: batch.parse_header(header, LOG), wrong, {"bad_batch"}, label)
        assert found is None or (found == right and wrong.startswith(whole)), label
    for label, wrong in damaged(stored() * 2):
        found = settle(lambda batches: batch.split(batches, LOG), wrong, {"bad_batch"}, label)
        assert found is None or b"".join(map(bytes, found)) == wrong, label


def read_request(frames: Sequence[bytes]) -> tuple[str, Any]:
    """Return the topic and the message of a request as the broker reads it."""
    call = binary_codec.decode_call(frames)
    name = "" if call.operation in WITHOUT_TOPIC else topic.decode_topic(call.topic)
    return name, binary_codec.decode_arguments(call)


def assert_is_read_again(message: Any, label: str) -> None:
    """Check that a message that was accepted is the same after another way through msgpack."""
    again = msgpack_schema.unpack(type(message), msgpack_schema.pack(message), strict=False)
    assert repr(again) == repr(message), label  # NaN is not NaN


def with_one_frame_damaged(frames: list[bytes], damaged: Labelled) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the frames with one of them damaged, left out, doubled, or exchanged with its neighbour."""
    for place, frame in enumerate(frames):
        for label, wrong in damaged(frame):
            yield f"frame {place}: {label}", [*frames[:place], wrong, *frames[place + 1 :]]
        yield f"frame {place} left out", frames[:place] + frames[place + 1 :]
        yield f"frame {place} twice", [*frames[:place], frame, *frames[place:]]
        yield (
            f"frame {place} moved back",
            [*frames[:place], *frames[place : place + 2][::-1], *frames[place + 2 :]],
        )


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_damaged_frames_are_read_or_refused(
    operation: Operation, damaged: Labelled, settle: Settle, make_message: Callable[[type[Any]], Any]
) -> None:
    """A message that is accepted is the same after it was written and read again."""
    ours = {"bad_request", "bad_topic", "unsupported_version", "unknown_operation"}
    topic = "" if operation in WITHOUT_TOPIC else "orders"
    payload = b"batch" if operation in WITH_PAYLOAD else None
    request = binary_codec.encode_request(make_message(REQUESTS[operation]), 5, topic, payload)
    reply = binary_codec.encode_reply(operation, 5, make_message(REQUESTS[operation].reply), b"batches")
    assert read_request(request)[0] == topic
    for label, frames in with_one_frame_damaged(request, damaged):
        found = settle(read_request, frames, ours | ABOVE, f"request, {label}")
        if found is not None:
            assert_is_read_again(found[1], label)
        binary_codec.is_fast(frames)
        binary_codec.correlation_of(frames)
    for label, frames in with_one_frame_damaged(list(map(bytes, reply)), damaged):
        answer = settle(binary_codec.decode_answer, frames, ours - {"bad_topic"}, f"reply, {label}")
        if answer is not None and not isinstance(answer.reply, QuothError):
            assert_is_read_again(answer.reply, label)


def test_damaged_error_reply_is_read_or_refused(damaged: Labelled, settle: Settle) -> None:
    whole = binary_codec.encode_error(Operation.PUBLISH, 5, error("out_of_sequence", "5 is not 4", "send 4"))
    for label, frames in with_one_frame_damaged(whole, damaged):
        answer = settle(
            binary_codec.decode_answer,
            frames,
            {"bad_request", "unsupported_version", "unknown_operation"},
            label,
        )
        if answer is not None:
            assert isinstance(answer.reply, QuothError), f"{label}: an error became {answer.reply}"
            again = binary_codec.decode_answer(binary_codec.encode_error(3, answer.correlation, answer.reply))
            assert str(again.reply) == str(answer.reply), label


def read_simple(frames: Sequence[bytes]) -> object:
    """Read a simple request as the broker does."""
    operation = text_codec.operation_of(frames)
    if operation in (Operation.PUBLISH, Operation.FETCH):
        topic.decode_topic(frames[1])
    return text_codec.decode_request(operation, frames)


def test_damaged_simple_request_is_read_or_refused(damaged: Labelled, settle: Settle) -> None:
    codes = {"bad_request", "bad_topic", "unknown_operation"} | ABOVE
    for request in (
        [b"ping"],
        [b"topics"],
        [b"topics", b"orders"],
        [b"publish", b"orders", b"value", b""],
        [b"read", b"orders", b"1767323045000001", b"100", b"1000"],
    ):
        read_simple(request)
        for label, wrong in with_one_frame_damaged(request, damaged):
            settle(read_simple, wrong, codes, label)
