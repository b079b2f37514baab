"""The output of commands on stdout, in three formats; records also by a template (template.py).

text    for people: a line per record, POINTER, TIME, VALUE separated by tabs, then key=... and NAME=...
        where there are a key and headers; what would disturb a terminal is escaped
json    one object per line; bytes are text if they are UTF-8, else NAME is null and NAME_base64 holds them;
        headers that cannot be decoded are empty, raw_headers_base64 holds them, and headers_problem says why
raw     bare values: a record's bytes and a newline, a name, a number
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, BinaryIO

from quothcli.cli.exit_status import Refused, forget_stdout
from quothcli.printing import progress
from quothcli.printing.text import (
    CONTROLS,
    NEEDS_ESCAPE,
    REORDERING,
    printable,
    printable_lines,
    shown,
)
from quothwire.pointer import time_text
from quothwire.text.record_json import record_object

if TYPE_CHECKING:
    from quoth import Message

_IN_JSON = {code: f"\\u{code:04x}" for code in (*CONTROLS, *REORDERING)}
_json = json.JSONEncoder(ensure_ascii=False).encode


class Format(StrEnum):
    """A format of the output."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"  # another word for json
    RAW = "raw"


class Printer:
    """Prints the results of a command; `flush` hands them on.

    template: converts a record to bytes, instead of the format.
    """

    def __init__(self, form: Format, template: Callable[[Message], bytes] | None = None) -> None:
        self.form = form
        self._template = template
        self._out: BinaryIO = sys.stdout.buffer

    def message(self, message: Message, *, with_topic: bool = False) -> None:
        """Print one record. with_topic: begin a line of text with the topic's name."""
        self._write(self.encoded(message, with_topic=with_topic))

    def encoded(self, message: Message, *, with_topic: bool = False) -> bytes:
        """Return what `message` prints, for a caller that writes it itself."""
        if self._template is not None:
            return self._template(message)
        if self.form is Format.RAW:
            return message.value + b"\n"
        if self.form is Format.JSON:
            return _line(_encode(record_object(message)))
        return _line((f"{printable(message.topic)}\t" if with_topic else "") + message_line(message))

    def object(self, content: Mapping[str, Any]) -> None:
        """Print an object as a line of JSON."""
        self._write(_line(_encode(content)))

    def line(self, text: str) -> None:
        """Print a line of text, or several; what would disturb a terminal is escaped."""
        self._write(_line(printable_lines(text)))

    @property
    def gives_objects(self) -> bool:
        """True if each record is an object of JSON."""
        return self.form is Format.JSON and self._template is None

    def done(self, what: str, text: str, content: Mapping[str, Any], raw: str | int | None = None) -> None:
        """Print the result of a change, as `answer` does.

        Raises `Refused` ``os_error`` that says what was done if it cannot be printed, or BrokenPipeError.
        """
        try:
            self.answer(text, content, raw)
        except BrokenPipeError:
            raise
        except OSError as problem:
            forget_stdout()
            text = f"{what}, but the output cannot be written: {problem.strerror}"
            raise Refused(
                "os_error", text, "do not repeat it; is there room where the output goes?"
            ) from None

    def answer(self, text: str, content: Mapping[str, Any], raw: str | int | float | None = None) -> None:
        """Print one result in the format of this printer, and hand it on.

        raw: its bare value, if that is not the text. An empty text stands for none.
        """
        if self.form is Format.JSON:
            self.object(content)
        elif text and self.form is Format.RAW and raw is not None:
            self._write(_line(str(raw)))
        elif text:
            self.line(text)
        self.flush()

    def flush(self) -> None:
        """Hand on everything that was printed."""
        self._out.flush()

    def _write(self, line: bytes) -> None:
        with progress.hidden():
            self._out.write(line)
            if progress.is_shown():
                self._out.flush()  # before the bar comes back


def _line(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _encode(content: Mapping[str, Any]) -> str:
    """Encode an object as a line of JSON that a terminal may show."""
    text = _json(content)
    return text.translate(_IN_JSON) if NEEDS_ESCAPE.search(text) else text


def message_line(message: Message) -> str:
    """Format a record as a line of text, without the newline."""
    line = f"{message.pointer}\t{time_text(message.pointer)}\t{shown(message.value)}"
    if message.key is not None:
        line += f"\tkey={shown(message.key)}"
    return "\t".join([line, *headers_texts(message)])


def headers_texts(message: Message) -> list[str]:
    """Format headers as ``NAME=VALUE``; then ``(PROBLEM: BYTES)`` if they cannot be decoded."""
    texts = [f"{printable(name)}={shown(value)}" for name, value in message.headers.items()]
    if message.raw_headers:
        texts.append(f"({message.headers_problem}: {shown(message.raw_headers)})")
    return texts
