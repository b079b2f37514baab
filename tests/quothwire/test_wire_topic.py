"""Topic names, as text and as a frame."""

from __future__ import annotations

from typing import Any

import pytest

from kit.text.wording import code_of
from quothwire.topic import TOPIC_BYTES_MAX, check_topic, decode_topic

VALID = {
    "one letter": "a",
    "the longest": "x" * TOPIC_BYTES_MAX,
    "the longest of two bytes each": "é" * (TOPIC_BYTES_MAX // 2),
    "the longest of four bytes each": "\U0001f4e8" * (TOPIC_BYTES_MAX // 4),
    "spaces": " a b ",
    "punctuation": "orders.eu-west_1:v2~%41\\*?",
    "three dots": "...",
    "dot and letter": ".a",
    "Chinese": "引述",
    "combining": "e\u0301",
    "joined letters": "\u0645\u06cc\u200c\u062e\u0648",
}
INVALID = {
    "empty": "",
    "one byte too long": "x" * (TOPIC_BYTES_MAX + 1),
    "too long in bytes, not in letters": "é" * (TOPIC_BYTES_MAX // 2) + "x",
    "very long": "x" * 1_000_000,
    "dot": ".",
    "two dots": "..",
    "slash": "/",
    "path": "a/b",
    "parent folder": "../a",
    "line separator": "a\u2028",
    "paragraph separator": "a\u2029",
    "half a surrogate pair": "a\ud800",
}
NOT_TEXT: list[Any] = [None, 5, b"orders", ["orders"], ("orders",)]
CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
NO_TEXT = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82", b"\x80", b"\xff" * 200]


@pytest.mark.parametrize("name", VALID.values(), ids=VALID)
def test_valid_name_is_accepted(name: str) -> None:
    assert check_topic(name) == decode_topic(name.encode()) == name


@pytest.mark.parametrize("name", INVALID.values(), ids=INVALID)
def test_invalid_name_is_refused(name: str) -> None:
    assert code_of(check_topic, name) == "bad_topic"
    assert code_of(decode_topic, name.encode("utf-8", "surrogatepass")) == "bad_topic"


def test_name_with_a_control_character_and_frame_that_is_not_utf_8_are_refused() -> None:
    for control in map(chr, CONTROLS):
        for name in (control, f"{control}a", f"a{control}"):
            assert code_of(check_topic, name) == "bad_topic"
    for frame in NO_TEXT:
        assert code_of(decode_topic, frame) == "bad_topic"


@pytest.mark.parametrize("name", NOT_TEXT, ids=repr)
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    assert code_of(check_topic, name) == "bad_topic"
