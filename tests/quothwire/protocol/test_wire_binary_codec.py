"""The fast protocol: frames of requests, replies and errors that are wrong in every way.

`test_wire_vectors` holds the valid frames of every operation.
"""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from kit.forged import CORRELATION, header
from kit.text.wording import code_of
from quothwire.errors import CODES, BrokerFailure, QuothError, RequestError, error
from quothwire.protocol import binary_codec, msgpack_schema, text_codec
from quothwire.protocol.binary_codec import (
    correlation_of,
    decode_answer,
    decode_arguments,
    decode_call,
    encode_error,
    encode_reply,
    encode_request,
    is_fast,
)
from quothwire.protocol.messages import (
    WITH_PAYLOAD,
    WITHOUT_TOPIC,
    DescribeTopic,
    Fetch,
    Hello,
    Operation,
    Ping,
    Pong,
)

BUSY = error("busy", "")


def test_request_without_arguments_has_the_defaults() -> None:
    assert decode_arguments(decode_call([header(Operation.FETCH), b"orders"])) == Fetch()


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_header_of_a_call_is_read_without_its_arguments_and_no_frame_too_many_is_accepted(
    operation: Operation,
) -> None:
    topic = b"" if operation in WITHOUT_TOPIC else b"\xff\xfe not a topic"
    payload = [b"not a batch"] if operation in WITH_PAYLOAD else []
    frames = [header(operation), topic, b"\xc1 not msgpack", *payload]
    call = decode_call(frames)
    assert (call.operation, call.topic, call.payload) == (operation, topic, b"".join(payload))
    assert code_of(decode_arguments, call) == "bad_request"
    assert code_of(decode_call, [*frames, b""]) == "bad_request"
    if operation in WITHOUT_TOPIC:
        assert code_of(decode_call, [frames[0], b"orders", *frames[2:]]) == "bad_request"


def test_error_is_the_same_after_a_reply() -> None:
    for code in CODES:
        problem = error(code, "what happened: é\n", "what to do")
        answer = decode_answer(encode_error(Operation.PUBLISH, CORRELATION, problem))
        assert isinstance(answer.reply, QuothError)
        assert type(answer.reply) is type(problem)
        assert vars(answer.reply) == vars(problem)
        assert (answer.correlation, answer.payload) == (CORRELATION, b"")


def test_error_with_any_text_becomes_a_small_reply() -> None:
    for words in ("x" * 10**7, "é" * 10**6, "\0" * 10**6, "half a \ud800 pair", "\udcff" * 10**5, ""):
        for problem in (error("internal", words), error("internal", "text", words)):
            frames = encode_error(Operation.PING, 1, problem)
            assert isinstance(decode_answer(frames).reply, BrokerFailure)
            assert len(frames[1]) < 2**14


def test_error_reply_with_missing_or_wrong_fields_is_refused() -> None:
    right = {"code": "busy", "text": "t", "hint": "h"}
    lacking = [{name: right[name] for name in right if name != left_out} for left_out in right]
    wrong: list[Any] = [{**right, "code": 5}, {**right, "text": b"t"}, {**right, "hint": None}, {}, [], None]
    for carried in (*lacking, *wrong):
        assert code_of(decode_answer, [header(status=2), msgpack.packb(carried)]) == "bad_request", carried


WRONG_HEADERS: dict[str, tuple[dict[str, Any], ...]] = {
    "bad_request": (
        {"magic": b"Q\xd1"},
        {"magic": bytes(2)},
        {"status": 3},
        {"status": 255},
        {"zeros": b"\1\0\0"},
        {"zeros": b"\0\0\1"},
    ),
    "unsupported_version": ({"version": 0}, {"version": 2, "status": 9, "zeros": b"\1\2\3"}),
    "unknown_operation": ({"operation": 0}, {"operation": 99}, {"operation": 255}),
}


@pytest.mark.parametrize("code", WRONG_HEADERS)
def test_wrong_header_is_refused_by_both_sides(code: str) -> None:
    for wrong in WRONG_HEADERS[code]:
        assert code_of(decode_call, [header(**{"status": 0, **wrong}), b"", b"\x80"]) == code, wrong
        (_, pong), (_, busy) = encode_reply(Operation.PING, 1, Pong(5), None), encode_error(1, 1, BUSY)
        for status, content in ((1, pong), (2, busy)):
            frames = [header(**{"status": status, **wrong}), content]
            if code == "unsupported_version":  # an answer, because the client would wait in vain else
                answer = decode_answer(frames)
                assert isinstance(answer.reply, RequestError)
                assert (answer.correlation, answer.reply.code) == (CORRELATION, code)
            else:
                assert code_of(decode_answer, frames) == code, wrong


def test_request_is_no_reply_and_a_reply_no_request() -> None:
    assert code_of(decode_answer, encode_request(Ping(), 1)[:2]) == "bad_request"
    assert code_of(decode_call, encode_reply(Operation.PING, 1, Pong(5), None)) == "bad_request"
    assert code_of(decode_call, encode_error(Operation.PING, 1, BUSY)) == "bad_request"


def test_wrong_frames_are_refused() -> None:
    for count in (0, 1, 5, 6, 1_000):
        frames = [header(), b"topic", b"\x80", b"payload", *[b""] * 1_000][:count]
        assert code_of(decode_call, frames) == "bad_request"
    for count in (0, 1, 4, 1_000):
        for status, content in ((1, msgpack_schema.pack(Pong(5))), (2, encode_error(1, 1, BUSY)[1])):
            frames = [header(status=status), content, *[b""] * 1_000][:count]
            assert code_of(decode_answer, frames) == "bad_request"
    for first in (b"", header()[:15], header() + b"\0", bytes(16), b"\xff" * 16, b"ping"):
        assert code_of(decode_call, [first, b"topic", b"\x80"]) == "bad_request"
        assert code_of(decode_answer, [first, b"\x80"]) == "bad_request"
        assert correlation_of([first]) == (0xFFFF_FFFF_FFFF_FFFF if first == b"\xff" * 16 else 0)
    for frames in ([header()], [header(99, version=7, status=9)], [header(), *[b""] * 99]):
        assert correlation_of(frames) == CORRELATION
    assert correlation_of([]) == 0


def test_simple_request_never_looks_like_a_fast_one() -> None:
    assert not any(is_fast([name]) for name in text_codec.OPERATIONS)
    assert not is_fast([])
    assert not is_fast([b""])
    with pytest.raises(UnicodeDecodeError):
        binary_codec.MAGIC.decode()
    assert code_of(text_codec.operation_of, encode_request(Hello(), 1)) == "unknown_operation"


def test_topic_that_is_not_unicode_is_encoded_for_the_broker_to_refuse() -> None:
    frames = encode_request(DescribeTopic(), 1, "half a \ud800 pair")
    assert decode_call(frames).topic == b"half a \xed\xa0\x80 pair"
