"""Topic names: what a name may be, the same for a text and for a frame."""

from __future__ import annotations

import pytest

from quothwire.errors import RequestError
from quothwire.topic import TOPIC_BYTES_MAX, check_topic, decode_topic

NAMES = {
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
REFUSED = {
    "empty": "",
    "one byte too long": "x" * (TOPIC_BYTES_MAX + 1),
    "too long in bytes, not in letters": "é" * (TOPIC_BYTES_MAX // 2) + "x",
    "very long": "x" * 1_000_000,
    "dot": ".",
    "two dots": "..",
    "slash": "/",
    "path": "a/b",
    "climbing": "../a",
    "zero byte": "a\0b",
    "line feed": "a\n",
    "escape": "\x1b[31m",
    "delete": "\x7f",
    "C1 control": "a\x85",
    "line separator": "a\u2028",
    "paragraph separator": "a\u2029",
    "half a surrogate pair": "a\ud800",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_name_is_taken(name: str) -> None:
    assert check_topic(name) == name
    assert decode_topic(name.encode()) == name


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
def test_name_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as refusal:
        check_topic(name)
    assert refusal.value.code == "bad_topic"
    with pytest.raises(RequestError) as refusal:
        decode_topic(name.encode("utf-8", "surrogatepass"))
    assert refusal.value.code == "bad_topic"
    assert len(str(refusal.value)) < 1_000, "a refusal does not repeat a long name"


@pytest.mark.parametrize("control", [*range(0x20), *range(0x7F, 0xA0)])
def test_no_control_character_is_taken_anywhere(control: int) -> None:
    for name in (chr(control), f"{chr(control)}a", f"a{chr(control)}"):
        with pytest.raises(RequestError, match="bad_topic"):
            check_topic(name)


@pytest.mark.parametrize(
    "frame",
    [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82", b"\x80", b"\xff" * 200],
    ids=["FF", "overlong slash", "surrogate", "beyond Unicode", "cut", "continuation", "many"],
)
def test_frame_that_is_no_text_is_refused(frame: bytes) -> None:
    with pytest.raises(RequestError) as refusal:
        decode_topic(frame)
    assert refusal.value.code == "bad_topic"
