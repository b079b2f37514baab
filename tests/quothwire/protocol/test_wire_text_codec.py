"""The simple protocol: requests with defaults and bounds, replies as documented."""

from __future__ import annotations

from functools import partial

import pytest

from kit.text.wording import code_of, error_of
from quothwire.errors import CODES, error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol import text_codec
from quothwire.protocol.group_messages import LEASE_MS_MAX, GroupFetch, GroupSettle
from quothwire.protocol.messages import WAIT_MS_MAX, Fetch, Operation
from quothwire.protocol.settlement import Settle, Settlement
from quothwire.protocol.text_codec import (
    LEASED_MAX,
    PUBLISH_VALUES_MAX,
    READ_BYTES,
    READ_LIMIT_MAX,
    SimpleLease,
    SimplePublish,
    SimpleSettle,
    decode_request,
    encode_damaged_lease,
    encode_leased,
    operation_of,
)

decode_publish = partial(decode_request, Operation.PUBLISH)
decode_read = partial(decode_request, Operation.FETCH)


def test_unknown_operation_and_wrong_number_of_frames_are_refused() -> None:
    wrong: list[list[bytes]] = [
        [],
        [b"publish"],
        [b"read"],
        [b"ping", b""],
        [b"read", b"orders", *[b"0"] * 100_000],
    ]
    unknown = ([b""], [b"", b"ping"], [b"ping "], [b"pin"], [b"\xff" * 1_000_000], [b"fetch", b"orders"])
    for code, many in (("bad_request", wrong), ("unknown_operation", unknown)):
        for frames in many:
            assert code_of(operation_of, frames) == code
    problem = error_of(operation_of, [b"subscribe" * 100_000])
    assert all(name.decode() in problem.hint for name in text_codec.OPERATIONS)


def test_values_of_a_publish_are_read_in_order_up_to_the_limit() -> None:
    for values in ([b"v"], [b""], [b"", b"a", b"\xff" * 1_000], [b""] * PUBLISH_VALUES_MAX):
        assert decode_publish([b"publish", b"orders", *values]) == SimplePublish(values)
    assert code_of(decode_publish, [b"publish", b"orders", *[b""] * (PUBLISH_VALUES_MAX + 1)]) == "too_large"


def test_read_has_defaults_for_missing_numbers() -> None:
    for numbers, after, limit, wait_ms in (
        ([], 0, 100, 0),
        ([b"5"], 5, 100, 0),
        ([b"5", b"1"], 5, 1, 0),
        ([b"0", b"%d" % READ_LIMIT_MAX, b"%d" % WAIT_MS_MAX], 0, READ_LIMIT_MAX, WAIT_MS_MAX),
        ([b"%d" % POINTER_MAX], POINTER_MAX, 100, 0),
        ([b"0" * 100 + b"5"], 5, 100, 0),
    ):
        read = Fetch(after=after, records_max=limit, bytes_max=READ_BYTES, wait_ms=wait_ms)
        assert decode_read([b"read", b"orders", *numbers]) == read


DECIMAL = "it must be an integer from 1 to 10000, in decimal digits"
NO_NUMBERS = [
    b"", b" ", b"-1", b"+1", b"1.0", b"1e3", b" 1", b"1 ", b"1\n", b"1\0", b"0x1", b"1_0", b"now", b"NaN",
    b"inf", b"\xff", b"\xc2\xb2", "\u0665".encode(), b"--1", b"-", b"-\xff", b"\5" + bytes(7),
]  # fmt: skip


def test_read_with_a_frame_that_is_no_decimal_is_refused() -> None:
    for place in range(3):
        for frame in NO_NUMBERS:
            numbers = [b"5", b"6", b"7"]
            numbers[place] = frame
            assert code_of(decode_read, [b"read", b"orders", *numbers]) == "bad_request"
            assert code_of(decode_read, [b"read", b"orders", *numbers[: place + 1]]) == "bad_request"


@pytest.mark.parametrize(
    ("numbers", "code", "text"),
    [
        ([b"-1"], "bad_request", "AFTER is -1: it must be an integer from 0 to 72057594037927935"),
        ([b"%d" % 2**56], "bad_pointer", f"AFTER is {2**56}: it must be an integer from 0 to {2**56 - 1}"),
        ([b"9" * 100_000], "bad_pointer", ""),
        ([b"-" + b"9" * 100_000], "bad_request", ""),
        ([b"0", b"10001"], "too_large", "LIMIT is 10001: it must be an integer from 1 to 10000"),
        ([b"0", b"1", b"600001"], "too_large", "WAIT_MS is 600001: it must be an integer from 0 to 600000"),
        ([b"0", b""], "bad_request", f"LIMIT is empty: {DECIMAL}"),
        ([b"0", b"1e3"], "bad_request", f"LIMIT is '1e3': {DECIMAL}"),
        ([b"0", b"\xff"], "bad_request", f"LIMIT is '\ufffd': {DECIMAL}"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_error_of_a_number_has_the_number_and_its_range(numbers: list[bytes], code: str, text: str) -> None:
    problem = error_of(decode_read, [b"read", b"orders", *numbers])
    assert (problem.code, problem.text if text else "") == (code, text)


def test_group_fetch_has_defaults_for_missing_numbers() -> None:
    for numbers, limit, wait_ms, lease_ms in (
        ([], 1, 0, 0),
        ([b"7"], 7, 0, 0),
        ([b"1000", b"%d" % WAIT_MS_MAX, b"%d" % LEASE_MS_MAX], LEASED_MAX, WAIT_MS_MAX, LEASE_MS_MAX),
    ):
        expected = GroupFetch("g", "", limit, READ_BYTES, wait_ms, lease_ms)
        assert decode_request(Operation.GROUP_FETCH, [b"group.fetch", b"t", b"g", *numbers]) == expected


def settle(word: str, *frames: bytes) -> SimpleSettle:
    decoded = decode_request(Operation.GROUP_SETTLE, [b"group.%s" % word.encode(), b"t", b"g", *frames])
    assert isinstance(decoded, SimpleSettle)
    return decoded


def test_pointers_of_a_settlement_are_rows_with_the_token_of_the_lease() -> None:
    """In order. Acks of pointers that follow each other are one row; all others are rows of their own."""
    pointers = [b"5", b"6", b"7", b"9", b"2", b"6", b"06"]
    message = GroupSettle("g", 3, generation=2)
    acks = [Settlement(Settle.ACK, first, last, 8) for first, last in ((2, 2), (5, 7), (9, 9))]
    assert settle("ack", b"2-8-500", *pointers) == (message, acks)
    for kind, more in ((Settle.NACK, 0), (Settle.EXTEND, 500), (Settle.TERM, 0)):
        rows = [Settlement(kind, one, one, 8, more) for one in (2, 5, 6, 7, 9)]
        assert settle(kind.name.lower(), b"2-8-500", *pointers).rows == rows
    many = [b"%d" % (2 * one) for one in range(1, LEASED_MAX + 1)]
    assert len(settle("ack", b"2-8-500", *many).rows) == LEASED_MAX
    assert settle("ack", b"0-0-0", b"1").rows == [Settlement(Settle.ACK, 1, 1)]


@pytest.mark.parametrize(
    ("code", "word", "frames"),
    [
        ("bad_request", "ack", [b"", b"1"]),
        ("bad_request", "ack", [b"1-2", b"1"]),
        ("bad_request", "ack", [b"1-2-3-4", b"1"]),
        ("bad_request", "ack", [b"1-2--3", b"1"]),
        ("bad_request", "ack", [b"1-2-3\n", b"1"]),
        ("bad_request", "ack", [b"1-%d-3" % 2**64, b"1"]),
        ("bad_request", "ack", [b"1-2-%d" % (LEASE_MS_MAX + 1), b"1"]),
        ("bad_request", "nack", [b"1-0-3", b"1"]),
        ("bad_request", "ack", [b"1-2-3", b"0"]),
        ("bad_request", "term", [b"1-2-3", b"-1"]),
        ("bad_request", "extend", [b"1-2-3", b"1", b""]),
        ("bad_pointer", "ack", [b"1-2-3", b"%d" % (POINTER_MAX + 1)]),
        ("too_large", "ack", [b"1-2-3", *[b"1"] * (LEASED_MAX + 1)]),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_settlement_with_a_wrong_lease_or_pointer_is_refused(
    code: str, word: str, frames: list[bytes]
) -> None:
    problem = error_of(settle, word, *frames)
    assert (problem.code, len(problem.text) < 200) == (code, True)


def test_a_lease_is_given_back_as_it_was_sent() -> None:
    for lease in (SimpleLease(0, 0, 0), SimpleLease(2**64 - 1, 2**64 - 1, LEASE_MS_MAX)):
        for frames in (encode_leased(lease, [])[1:], encode_damaged_lease(lease, [1, 2])[3:4]):
            found = settle("ack", *frames, b"1")
            assert found.message.generation == lease.generation
            assert found.rows[0].token == lease.token
    assert encode_damaged_lease(lease, [1, 2])[4:] == [b"1", b"2"]


def test_error_is_its_code_and_a_text_with_the_hint() -> None:
    for code in CODES:
        text = f"what happened ({CODES[code].hint})".encode()
        assert text_codec.encode_error(error(code, "what happened")) == [b"error", code.encode(), text]
        assert text_codec.encode_error(error(code, "é \ud800", ""))[2] == b"\xc3\xa9 ?"
