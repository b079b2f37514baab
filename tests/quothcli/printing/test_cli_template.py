"""Records are printed by a template; errors of a template are found before anything is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import BadParameter

from kit.machine.commands import Command
from quoth import Message
from quothcli.printing.output import Format
from quothcli.printing.template import template_of

POINTER = 1_767_323_045_000_001
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
    told = alone("log", "dump", str(directory), "--limit", "2", "--template", "{key}={value}")
    assert told.lines == ["k=0.0", "k=0.1"]


def test_jsonl_and_json_are_the_same(alone: Command, directory: Path) -> None:
    told = alone("log", "ls", str(directory), "--format", "jsonl")
    assert told.objects
    assert told == alone("log", "ls", str(directory), "--format", "json")
