"""What commands print on stdout, in the three formats; records also by a template (template.py).

text    for people: a line per record, POINTER, TIME, VALUE separated by tabs, then key=... and NAME=...
        where there are a key and headers; what would disturb a terminal is escaped
json    one object per line; bytes are text if they are UTF-8, else NAME is null and NAME_base64 holds them;
        headers that cannot be decoded are empty, raw_headers_base64 holds them, and headers_problem says why
raw     bare values: a record's bytes and a newline, a name, a number
"""

from __future__ import annotations

import base64
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

from quothcli.printing import progress
from quothcli.printing.formats import Format
from quothwire import pointer as pointers
from quothwire.text.quantity import format_size

if TYPE_CHECKING:
    from quoth import Message


_CONTROLS = (*range(32), *range(127, 160))
"""C0, DEL and C1: a terminal takes them for commands."""
_TURNS = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""What makes a terminal show a text in another order than it has, and Unicode's ends of lines."""
_ESCAPED = (
    {code: f"\\x{code:02x}" for code in _CONTROLS}
    | {code: f"\\u{code:04x}" for code in _TURNS}
    | {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
)
_LAID_OUT = {code: text for code, text in _ESCAPED.items() if chr(code) not in "\t\n"}
"""For a text that was laid out here, in lines and by tabs."""
_IN_JSON = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_TURNS)}
_HARMFUL = re.compile(f"[{''.join(map(chr, (*_CONTROLS, *_TURNS)))}]")

_json = json.JSONEncoder(ensure_ascii=False).encode


class Printer:
    """Prints what a command has to say; `flush` hands it on.

    template: how a record becomes bytes, if not by the format.
    """

    def __init__(self, form: Format, template: Callable[[Message], bytes] | None = None) -> None:
        self.form = form
        self._template = template
        self._out: BinaryIO = sys.stdout.buffer

    def message(self, message: Message, *, with_topic: bool = False) -> None:
        """Print one record. with_topic: begin a line of text with the topic's name."""
        self._write(self.encoded(message, with_topic=with_topic))

    def encoded(self, message: Message, *, with_topic: bool = False) -> bytes:
        """What `message` prints, for whoever hands it on by himself."""
        if self._template is not None:
            return self._template(message)
        if self.form is Format.RAW:
            return message.value + b"\n"
        if self.form is Format.JSON:
            return _line(_encode(message_object(message)))
        return _line((f"{printable(message.topic)}\t" if with_topic else "") + message_line(message))

    def object(self, content: Mapping[str, Any]) -> None:
        """Print an object as a line of JSON."""
        self._write(_line(_encode(content)))

    def line(self, text: str) -> None:
        """Print a line of text, or several; what would disturb a terminal is escaped."""
        self._write(_line(text.translate(_LAID_OUT) if _HARMFUL.search(text) else text))

    @property
    def gives_objects(self) -> bool:
        """Is each record an object of JSON?"""
        return self.form is Format.JSON and self._template is None

    def answer(self, text: str, content: Mapping[str, Any], raw: str | int | float | None = None) -> None:
        """Print one result in the format that was chosen; raw: its bare value, if it is not the text."""
        if self.form is Format.JSON:
            self.object(content)
        elif text:
            if self.form is Format.RAW and raw is not None:
                self._write(_line(str(raw)))
            else:
                self.line(text)

    def flush(self) -> None:
        """Hand on everything that was printed."""
        self._out.flush()

    def _write(self, line: bytes) -> None:
        with progress.hidden():
            self._out.write(line)
            if progress.is_shown():
                self._out.flush()  # before the bar comes back


def _encode(content: Mapping[str, Any]) -> str:
    """An object as a line of JSON that a terminal may show: the same when it is parsed."""
    text = _json(content)
    return text.translate(_IN_JSON) if _HARMFUL.search(text) else text


def message_line(message: Message) -> str:
    """A record as a line of text, without the newline."""
    line = f"{message.pointer}\t{time_text(message.pointer)}\t{shown(message.value)}"
    if message.key is not None:
        line += f"\tkey={shown(message.key)}"
    return "\t".join([line, *headers_texts(message)])


def headers_texts(message: Message) -> list[str]:
    """A record's headers as ``NAME=VALUE``; then ``(PROBLEM: BYTES)`` if they cannot be decoded."""
    texts = [f"{printable(name)}={shown(value)}" for name, value in message.headers.items()]
    if message.raw_headers:
        texts.append(f"({message.headers_problem}: {shown(message.raw_headers)})")
    return texts


def message_object(message: Message) -> dict[str, Any]:
    """A record as an object of JSON."""
    content: dict[str, Any] = {
        "topic": message.topic,
        "pointer": message.pointer,
        "time": time_text(message.pointer),
    }
    _put(content, "key", message.key)
    _put(content, "value", message.value)
    texts: dict[str, str | None] = {}
    encoded: dict[str, str] = {}
    for name, value in message.headers.items():
        try:
            texts[name] = value.decode()
        except UnicodeDecodeError:
            texts[name], encoded[name] = None, base64.b64encode(value).decode()
    content["headers"] = texts
    if encoded:
        content["headers_base64"] = encoded
    if message.raw_headers:
        content["raw_headers_base64"] = base64.b64encode(message.raw_headers).decode()
        content["headers_problem"] = message.headers_problem
    return content


def shown(value: bytes) -> str:
    """Bytes as text in one line that does no harm to a terminal."""
    return printable(value.decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Text without control characters."""
    return text if text.isprintable() else text.translate(_ESCAPED)


def cells_of(text: str) -> int:
    """Count the cells that a text takes on a terminal: 2 for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(one) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(one) in "WF"
        else 1
        for one in text
    )


def padded(text: str, width: int) -> str:
    """Return a text with spaces behind it, so that it takes at least so many cells of a terminal."""
    return text + " " * (width - cells_of(text))


def time_text(pointer: int) -> str:
    """`pointers.to_text` for many: whoever prints a million records has some thousand seconds of them."""
    second, microsecond = divmod(pointer, 1_000_000)
    return f"{_second_text(second)}.{microsecond:06d}Z"


def moment_text(pointer: int) -> str:
    """A pointer's time, a dash for the pointer that stands before everything."""
    return pointers.to_text(pointer) if pointer else "-"


def records_text(count: int) -> str:
    """A number of records for people."""
    return "1 record" if count == 1 else f"{count:,} records"


def ordinals_text(first: int, count: int) -> str:
    """Which records these are, counted from the beginning of the topic; nothing if that is not known."""
    return f", ordinals {first} to {first + count - 1}" if first >= 0 and count > 0 else ""


def bytes_text(size: float) -> str:
    """A measured number of bytes for people, three digits of it."""
    return format_size(size, rough=True)


def _line(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace") + b"\n"


@lru_cache(maxsize=1_000)
def _second_text(second: int) -> str:
    return pointers.to_text(second * 1_000_000)[:19]


def _put(content: dict[str, Any], name: str, value: bytes | None) -> None:
    try:
        content[name] = value.decode() if value is not None else None
    except UnicodeDecodeError:
        content[name], content[f"{name}_base64"] = None, base64.b64encode(value or b"").decode()
