"""Printed text has no control characters, JSON loses nothing, columns are aligned, templates print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import BadParameter

from kit.machine.commands import Command
from quoth import Message
from quothcli.printing.output import Format, Printer, message_line
from quothcli.printing.rows import PrintedColumns
from quothcli.printing.template import template_of
from quothcli.printing.text import cells_of, shown
from quothwire import pointer as pointers
from quothwire.pointer import time_text
from quothwire.text.record_json import json_object, record_object

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
        assert record_object(record) == expected, case


@given(st.binary(), st.none() | st.binary(), st.dictionaries(st.text(max_size=5), st.binary(), max_size=3))
def test_json_loses_nothing(value: bytes, key: bytes | None, headers: dict[str, bytes]) -> None:
    line = json.dumps(record_object(Message("t", POINTER, value, key, headers)), ensure_ascii=False)
    assert "\n" not in line
    assert json_object(line.encode()) == (value, key, headers)


ESCAPED = "".join(map(chr, (*range(9), *range(11, 32), *range(127, 160))))
ESCAPED += "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("form", [Format.JSON, Format.TEXT])
def test_control_characters_do_not_reach_a_terminal(
    form: Format, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """In a value, a key, a header, a topic's name or an answer; JSON means the same."""
    record = Message(f"t{ESCAPED}", POINTER, ESCAPED.encode(), ESCAPED.encode(), {ESCAPED: ESCAPED.encode()})
    printer = Printer(form)
    printer.message(record, with_topic=True)
    printer.answer(f"name {ESCAPED}", {"name": ESCAPED})
    printer.flush()
    printed = capfdbinary.readouterr().out.decode()
    assert not set(printed) & set(ESCAPED)
    lines = printed.split("\n")
    assert len(lines) == 3
    if form is Format.JSON:
        assert json.loads(lines[0]) == record_object(record)
        assert json.loads(lines[1]) == {"name": ESCAPED}


def test_template_escapes_control_characters_and_raw_does_not() -> None:
    record = message(ESCAPED.encode(), ESCAPED.encode())
    template = template_of("{key} {value}", None)
    assert template is not None
    assert not set(template(record).decode()) & set(ESCAPED)
    assert Printer(Format.RAW).encoded(record) == ESCAPED.encode() + b"\n"


@given(st.binary(max_size=50))
def test_bytes_are_shown_in_one_line_without_control_characters(value: bytes) -> None:
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


# -- templates ------------------------------------------------------------------------------------


RECORD = Message("orders", POINTER, b"a\tb\xff", b"k\n", {"trace": b"\x00\xfe", "a b": "ü".encode()})
BARE = Message("orders", POINTER, b"", None, {})

TEMPLATES = {
    "": b"",
    "{topic} {pointer}": b"orders 1767323045000001",
    "{time}": b"2026-01-02T03:04:05.000001Z",
    "{time:%H:%M:%S}": b"03:04:05",
    "{time:%d.%m.%Y %f}": b"02.01.2026 000001",
    "{key}: {value}": rb"k\n: a\tb\xff",
    "{key!raw}{value!raw}": b"k\na\tb\xff",
    "{headers[trace]}/{headers[trace]!raw}": rb"\x00\xfe/" + b"\x00\xfe",
    "{headers[a b]}": "ü".encode(),
    "{headers[none]}|": b"|",
    "{pointer:>20}|{key:<5}|{topic:^10}": rb"    1767323045000001|k\n  |  orders  ",
    "{pointer:,}": b"1,767,323,045,000,001",
    r"a\tb\nc\\d": b"a\tb\nc\\d",
    "{{{topic}}} {{}}": b"{orders} {}",
    "grüße": "grüße".encode(),
    "<{headers_problem}|{raw_headers}|{raw_headers!raw}>": b"<||>",
}


def printed(text: str, record: Message) -> bytes:
    """Print a record by a template."""
    template = template_of(text, None)
    assert template is not None
    return template(record)


def test_template_prints_a_record() -> None:
    for text, line in TEMPLATES.items():
        assert printed(text, RECORD) == line + b"\n", text


def test_missing_parts_of_a_record_are_empty() -> None:
    assert printed("<{key}|{value}|{headers[trace]}|{key!raw}>", BARE) == b"<|||>\n"


WRONG = {
    "{valu}": "did you mean {value}?",
    "{header[a]}": "did you mean {headers[NAME]}?",
    "{headers}": "did you mean {headers[NAME]}?",
    "{value[0]}": "did you mean {value}?",
    "{}": "there are topic, pointer, time, key, value, headers[NAME], headers_problem, raw_headers",
    "{xyz}": "there are topic, pointer, time, key, value, headers[NAME], headers_problem, raw_headers",
    "{value!r}": "is no field",
    "{topic!raw}": "a topic is text",
    "{headers_problem!raw}": "a headers_problem is text",
    "{raw_header}": "did you mean {raw_headers}?",
    "{value!raw:>5}": "has no format",
    "{pointer:%Y}": "Invalid format specifier",
    "{value:,}": "Cannot specify ','",
    "{value:>99999999999999999}": "too wide",
    "{value": "a single {",
    "value}": "a single }",
    "{a{b}}": "a single {",
    r"\q": "there is no \\q",
    "\\": "a single \\",
}


def test_wrong_template_is_refused_with_a_reason() -> None:
    for text, why in WRONG.items():
        with pytest.raises(BadParameter) as caught:
            template_of(text, None)
        assert why in caught.value.message, text


def test_template_excludes_a_format() -> None:
    with pytest.raises(BadParameter):
        template_of("{value}", Format.JSON)
    assert template_of(None, Format.JSON) is None


@given(st.text())
def test_any_text_is_taken_or_refused(text: str) -> None:
    try:
        template = template_of(text, None)
    except BadParameter:
        return
    assert template is not None
    assert template(RECORD).endswith(b"\n")


# -- in the commands ----------------------------------------------------------------------------------------


def test_read_tail_and_get_take_a_template(
    quoth: Command, topic: str, fill: Callable[..., list[int]]
) -> None:
    first, second = fill(b"one", b"two")
    template = ("--template", r"{topic}\t{value}!")
    lines = [f"{topic}\tone!", f"{topic}\ttwo!"]
    assert quoth("read", topic, *template).lines == lines
    assert quoth("tail", topic, "--after", "0", "--limit", "2", *template).lines == lines
    assert quoth("get", topic, str(second), *template).lines == lines[1:]
    assert quoth("get", topic, str(first), "--template", "{pointer}").lines == [str(first)]


def test_dump_takes_a_template(alone: Command, directory: Path) -> None:
    result = alone("log", "dump", str(directory), "--limit", "2", "--template", "{key}={value}")
    assert result.lines == ["k=0.0", "k=0.1"]


def test_jsonl_and_json_are_the_same(alone: Command, directory: Path) -> None:
    result = alone("log", "ls", str(directory), "--format", "jsonl")
    assert result.objects
    assert result == alone("log", "ls", str(directory), "--format", "json")
