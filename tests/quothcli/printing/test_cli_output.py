"""Printed text harms no terminal, JSON loses nothing, columns stand below each other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth import Message
from quothcli.printing.output import Format, Printer, message_line, message_object
from quothcli.printing.rows import PrintedColumns
from quothcli.printing.template import template_of
from quothcli.printing.text import cells_of, shown, time_text
from quothcli.records.record_parser import json_object
from quothwire import pointer as pointers

POINTER = 1_767_323_045_000_001
TIME = "2026-01-02T03:04:05.000001Z"


def message(value: bytes, key: bytes | None = None, **headers: bytes) -> Message:
    """A record of a topic."""
    return Message("orders", POINTER, value, key, headers)


LINES = {
    "plain": (message(b"hello"), "hello"),
    "empty": (message(b""), ""),
    "not ASCII": (message("grüße ☃".encode()), "grüße ☃"),
    "not UTF-8": (message(b"a\xffb"), r"a\xffb"),
    "control characters": (message(b"a\tb\nc\rd\x1b[31m\x00\x7f"), r"a\tb\nc\rd\x1b[31m\x00\x7f"),
    "C1 control characters": (message("a\x9bb".encode()), r"a\x9bb"),
    "turned text": (message("a\u202eb\u2066\u200f\u061c".encode()), r"a\u202eb\u2066\u200f\u061c"),
    "a key": (message(b"v", b"k\n"), "v\tkey=k\\n"),
    "an empty key": (message(b"v", b""), "v\tkey="),
    "headers": (message(b"v", None, a=b"1", b=b"\xff"), "v\ta=1\tb=\\xff"),
}


def test_record_as_text() -> None:
    for case, (record, line) in LINES.items():
        assert message_line(record) == f"{POINTER}\t{TIME}\t{line}", case


OBJECTS: dict[str, tuple[Message, dict[str, Any]]] = {
    "plain": (message(b"hello"), {"key": None, "value": "hello", "headers": {}}),
    "empty": (message(b"", b""), {"key": "", "value": "", "headers": {}}),
    "not UTF-8": (
        message(b"\xff", b"\xfe", a=b"1", b=b"\xfd"),
        {
            "key": None,
            "key_base64": "/g==",
            "value": None,
            "value_base64": "/w==",
            "headers": {"a": "1", "b": None},
            "headers_base64": {"b": "/Q=="},
        },
    ),
}


def test_record_as_an_object() -> None:
    for case, (record, content) in OBJECTS.items():
        expected = {"topic": "orders", "pointer": POINTER, "time": TIME, **content}
        assert message_object(record) == expected, case


@given(st.binary(), st.none() | st.binary(), st.dictionaries(st.text(max_size=5), st.binary(), max_size=3))
def test_json_loses_nothing(value: bytes, key: bytes | None, headers: dict[str, bytes]) -> None:
    line = json.dumps(message_object(Message("t", POINTER, value, key, headers)), ensure_ascii=False)
    assert "\n" not in line
    assert json_object(line.encode()) == (value, key, headers)


HARMFUL = "".join(map(chr, (*range(9), *range(11, 32), *range(127, 160))))
HARMFUL += "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("form", [Format.JSON, Format.TEXT])
def test_harmful_characters_do_not_reach_a_terminal(
    form: Format, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """In a value, a key, a header, a topic's name or an answer; JSON means the same."""
    record = Message(f"t{HARMFUL}", POINTER, HARMFUL.encode(), HARMFUL.encode(), {HARMFUL: HARMFUL.encode()})
    printer = Printer(form)
    printer.message(record, with_topic=True)
    printer.answer(f"name {HARMFUL}", {"name": HARMFUL})
    printer.flush()
    printed = capfdbinary.readouterr().out.decode()
    assert not set(printed) & set(HARMFUL)
    lines = printed.split("\n")
    assert len(lines) == 3
    if form is Format.JSON:
        assert json.loads(lines[0]) == message_object(record)
        assert json.loads(lines[1]) == {"name": HARMFUL}


def test_template_escapes_harmful_characters_and_raw_does_not() -> None:
    record = message(HARMFUL.encode(), HARMFUL.encode())
    template = template_of("{key} {value}", None)
    assert template is not None
    assert not set(template(record).decode()) & set(HARMFUL)
    assert Printer(Format.RAW).encoded(record) == HARMFUL.encode() + b"\n"


@given(st.binary(max_size=50))
def test_bytes_are_shown_in_one_harmless_line(value: bytes) -> None:
    text = shown(value)
    assert all(character == " " or character.isprintable() or ord(character) >= 160 for character in text)


@given(st.integers(0, pointers.POINTER_MAX))
def test_times_are_formatted_as_by_the_library(pointer: int) -> None:
    assert time_text(pointer) == pointers.to_text(pointer)


DAY = 86_400_000_000
CELLS = {
    "": 0,
    "key": 3,
    "\u00fc": 1,
    "u\u0308": 1,  # a combining mark
    "\u9375": 2,  # wide
    "\uff21": 2,  # full width
    "\U0001f511": 2,
    "\u0e01\u0e31\u0e19": 2,  # Thai: a mark above, of combining class 0
    "a\u20ddb": 2,  # an enclosing mark
}


def test_cells_of_a_text() -> None:
    assert {text: cells_of(text) for text in CELLS} == CELLS


def test_values_stand_below_each_other_behind_wide_keys() -> None:
    rows = PrintedColumns(pointers=False, with_topic=False, colour=False, columns=80)
    keys = ("abcd", "\u9375\u9375", "\u0e01\u0e31\u0e19-\u0e01", "ab")
    for number, key in enumerate(keys):
        line = rows(Message("orders", POINTER + number, b"value", key.encode(), {})).decode().splitlines()[-1]
        assert cells_of(line.partition("value")[0]) == 20, line


def test_each_new_date_has_a_line() -> None:
    rows = PrintedColumns(pointers=False, with_topic=False, colour=False, columns=80)
    pointers = [POINTER, POINTER + 1_000, POINTER + DAY, POINTER + DAY + 1_000]
    printed = b"".join(rows(Message("orders", pointer, b"v", None, {})) for pointer in pointers)
    assert printed.decode().splitlines() == [
        "--- 2026-01-02 UTC ---",
        "03:04:05.000  v",
        "03:04:05.001  v",
        "--- 2026-01-03 UTC ---",
        "03:04:05.000  v",
        "03:04:05.001  v",
    ]
