"""The simple protocol: requests as a person would write them, and every way to get them wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quothwire.errors import CODES, RequestError, error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import text_codec
from quothwire.protocol.messages import WAIT_MS_MAX, Operation
from quothwire.protocol.text_codec import (
    PUBLISH_VALUES_MAX,
    READ_LIMIT_MAX,
    SimplePublish,
    SimpleRead,
    decode_publish,
    decode_read,
    operation_of,
)


def refusal_of(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(RequestError) as refusal:
        call(*arguments)
    return refusal.value.code


@pytest.mark.parametrize(
    ("frames", "operation"),
    [
        ([b"ping"], Operation.PING),
        ([b"topics"], Operation.LIST),
        ([b"publish", b"orders", b"v"], Operation.PUBLISH),
        ([b"read", b"orders"], Operation.FETCH),
        ([b"read", b""], Operation.FETCH),
    ],
)
def test_first_frame_names_the_operation(frames: list[bytes], operation: Operation) -> None:
    assert operation_of(frames) is operation


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([], "bad_request"),
        ([b"publish"], "bad_request"),
        ([b"publish", b"orders"], "bad_request"),
        ([b"read"], "bad_request"),
        ([b"read", b"orders", b"0", b"1", b"0", b"0"], "bad_request"),
        ([b"read", b"orders", *[b"0"] * 100_000], "bad_request"),
        ([b"ping", b""], "bad_request"),
        ([b"ping", b"x"], "bad_request"),
        ([b"topics", b"", b""], "bad_request"),
        ([b""], "unknown_operation"),
        ([b"", b"ping"], "unknown_operation"),
        ([b"PING"], "unknown_operation"),
        ([b"ping "], "unknown_operation"),
        ([b"pin"], "unknown_operation"),
        ([b"ping\0"], "unknown_operation"),
        ([b"\xff" * 1_000_000], "unknown_operation"),
        ([b"fetch", b"orders"], "unknown_operation"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_request_for_nothing_known_is_refused(frames: list[bytes], code: str) -> None:
    assert refusal_of(operation_of, frames) == code


def test_refusal_of_an_operation_names_the_known_ones() -> None:
    with pytest.raises(RequestError) as refusal:
        operation_of([b"subscribe" * 100_000])
    assert all(name.decode() in refusal.value.hint for name in text_codec.OPERATIONS)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("values", [[b"v"], [b""], [b"", b"a", b"\xff" * 1_000], [b""] * PUBLISH_VALUES_MAX])
def test_values_of_a_publish_arrive_in_order(values: list[bytes]) -> None:
    assert decode_publish([b"publish", b"orders", *values]) == SimplePublish(values)


def test_publish_of_too_much_is_refused() -> None:
    assert (
        refusal_of(decode_publish, [b"publish", b"orders", *[b""] * (PUBLISH_VALUES_MAX + 1)]) == "too_large"
    )


@pytest.mark.parametrize(
    ("numbers", "read"),
    [
        ([], SimpleRead(0, 100, 0)),
        ([b"5"], SimpleRead(5, 100, 0)),
        ([b"5", b"1"], SimpleRead(5, 1, 0)),
        ([b"5", b"1", b"7"], SimpleRead(5, 1, 7)),
        ([b"0", b"%d" % READ_LIMIT_MAX, b"%d" % WAIT_MS_MAX], SimpleRead(0, READ_LIMIT_MAX, WAIT_MS_MAX)),
        ([b"%d" % POINTER_MAX], SimpleRead(POINTER_MAX, 100, 0)),
        ([b"00000000000000000005"], SimpleRead(5, 100, 0)),
        ([b"0" * 100 + b"5"], SimpleRead(5, 100, 0)),
    ],
)
def test_read_has_defaults_for_what_is_left_away(numbers: list[bytes], read: SimpleRead) -> None:
    assert decode_read([b"read", b"orders", *numbers]) == read


NO_NUMBERS = [
    b"", b" ", b"-1", b"+1", b"1.0", b"1e3", b" 1", b"1 ", b"1\n", b"1\0", b"0x1", b"1_0", b"now", b"NaN",
    b"inf", b"\xff", b"\xc2\xb2", "\u0665".encode(), b"--1", b"-", b"-\xff", b"\5" + bytes(7),
]  # fmt: skip


@pytest.mark.parametrize("frame", NO_NUMBERS, ids=lambda frame: repr(frame[:24]))
@pytest.mark.parametrize("place", [0, 1, 2], ids=["AFTER", "LIMIT", "WAIT_MS"])
def test_read_with_what_is_no_decimal_is_refused(frame: bytes, place: int) -> None:
    numbers = [b"5", b"6", b"7"]
    numbers[place] = frame
    assert refusal_of(decode_read, [b"read", b"orders", *numbers]) == "bad_request"
    assert refusal_of(decode_read, [b"read", b"orders", *numbers[: place + 1]]) == "bad_request"


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([b"%d" % (POINTER_MAX + 1)], "bad_pointer"),
        ([b"%d" % 2**64], "bad_pointer"),
        ([b"9" * 20], "bad_pointer"),
        ([b"9" * 100_000], "bad_pointer"),
        ([b"-0"], "bad_request"),
        ([b"-" + b"9" * 100_000], "bad_request"),
        ([b"0", b"0"], "bad_request"),
        ([b"0", b"%d" % (READ_LIMIT_MAX + 1)], "too_large"),
        ([b"0", b"9" * 20], "too_large"),
        ([b"0", b"1", b"%d" % (WAIT_MS_MAX + 1)], "too_large"),
        ([b"0", b"1", b"9" * 20], "too_large"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_read_beyond_its_bounds_is_refused(numbers: list[bytes], code: str) -> None:
    assert refusal_of(decode_read, [b"read", b"orders", *numbers]) == code


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([b"-1"], "AFTER is -1: it must be an integer from 0 to 72057594037927935"),
        (
            [b"72057594037927936"],
            "AFTER is 72057594037927936: it must be an integer from 0 to 72057594037927935",
        ),
        ([b"0", b"10001"], "LIMIT is 10001: it must be an integer from 1 to 10000"),
        ([b"0", b"1", b"600001"], "WAIT_MS is 600001: it must be an integer from 0 to 600000"),
        ([b"0", b""], "LIMIT is empty: it must be an integer from 1 to 10000, in decimal digits"),
        ([b"0", b"1e3"], "LIMIT is '1e3': it must be an integer from 1 to 10000, in decimal digits"),
        ([b"0", b"\xff"], "LIMIT is '\ufffd': it must be an integer from 1 to 10000, in decimal digits"),
    ],
)
def test_text_of_a_number_that_does_not_fit_tells_it_and_its_range(numbers: list[bytes], text: str) -> None:
    with pytest.raises(RequestError) as refusal:
        decode_read([b"read", b"orders", *numbers])
    assert refusal.value.text == text


def test_replies_are_the_documented_frames() -> None:
    assert text_codec.encode_ok(5) == [b"ok", b"5"]
    assert text_codec.encode_ok(5, POINTER_MAX) == [b"ok", b"5", b"72057594037927935"]
    assert text_codec.encode_ok(rest=[b"a", b"b"]) == [b"ok", b"a", b"b"]
    records = text_codec.encode_records([7, 8, 9], [b"", b"x", b"8"])
    assert text_codec.encode_ok(9, rest=records) == [b"ok", b"9", b"7", b"", b"8", b"x", b"9", b"8"]


@pytest.mark.parametrize("code", CODES)
def test_error_is_its_code_and_a_text_with_the_hint(code: str) -> None:
    hint = CODES[code].hint
    assert text_codec.encode_error(error(code, "what happened")) == [
        b"error",
        code.encode(),
        f"what happened ({hint})".encode(),
    ]
    assert text_codec.encode_error(error(code, "é \ud800", "")) == [b"error", code.encode(), b"\xc3\xa9 ?"]
