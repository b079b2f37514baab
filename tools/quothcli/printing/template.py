"""Prints records by a template: `{pointer} {time:%H:%M:%S} {key}: {value}`.

    {topic} {pointer} {time} {key} {value} {headers[NAME]}     parts of a record; empty if it has none
    {headers_problem} {raw_headers}                            why headers cannot be decoded, their bytes
    {pointer:>20} {time:%H:%M:%S} {key:<10}                    formatted as Python does it
    {key!raw} {value!raw} {headers[NAME]!raw} {raw_headers!raw}    the bytes as they are
    \\t \\n \\r \\\\ {{ }}                                         a tab, a newline, ..., braces

Without !raw, bytes are shown as the text format shows them: in one line without control characters. Each
record ends with a newline. Errors in a template are found before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from typer import BadParameter

from quoth import Message
from quothcli.printing.output import Format
from quothcli.printing.text import printable, shown
from quothwire.pointer import time_text
from quothwire.text.suggestion import nearest

FIELDS = ("topic", "pointer", "time", "key", "value", "headers[NAME]", "headers_problem", "raw_headers")

_PIECE = r"(?s)\{\{|\}\}|\{([^{}]*)\}|[{}]|\\(.)|[^{}\\]+|\\"
_FIELD = r"(?s)(?P<name>[^\[\]!:]*)(?:\[(?P<header>[^\]]*)\])?(?P<raw>!raw)?(?::(?P<spec>.*))?"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\", "0": "\0"}
_SAMPLE = Message("topic", 1_767_323_045_000_001, b"value", b"key", {})

Part = Callable[[Message], bytes]


def template_of(text: str | None, form: Format | None) -> Part | None:
    """Parse a template; None if none was typed. Raises BadParameter."""
    if text is None:
        return None
    if form is not None:
        raise BadParameter("a template is a format: give one of them", param_hint="--template")
    parts = [_part(piece) for piece in re.finditer(_PIECE, text)]

    def template(message: Message) -> bytes:
        return b"".join([part(message) for part in parts]) + b"\n"

    try:
        template(_SAMPLE)
    except (ValueError, TypeError, MemoryError, OverflowError) as problem:
        raise _wrong(f"{text!r}: {str(problem) or 'it is too wide'}") from None
    return template


def _part(piece: re.Match[str]) -> Part:
    whole, field, escaped = piece[0], piece[1], piece[2]
    if field is not None:
        return _field(field)
    if escaped is not None:
        if escaped not in _ESCAPES:
            raise _wrong(f"there is no {whole}; there are \\t, \\n, \\r, \\0 and \\\\")
        whole = _ESCAPES[escaped]
    elif whole in ("{{", "}}"):
        whole = whole[0]
    elif whole in ("{", "}", "\\"):
        raise _wrong(f"a single {whole}; two of them stand for one")
    literal = _encoded(whole)
    return lambda _: literal


def _field(text: str) -> Part:
    """Parse a field between braces."""
    found = re.fullmatch(_FIELD, text)
    if found is None:
        raise _wrong(f"{{{text}}} is no field; like {{value}}, {{value!raw}} or {{time:%H:%M:%S}}")
    name, header, raw, spec = found["name"], found["header"], found["raw"], found["spec"] or ""
    if (name if header is None else f"{name}[NAME]") not in FIELDS:
        raise _unknown(name)
    if name in _TEXTS:
        if raw:
            raise _wrong(f"{{{text}}}: a {name} is text; key, value, headers and raw_headers may be !raw")
        if name == "time" and spec:
            return lambda message: _encoded(message.time.strftime(spec))
        return _text(_TEXTS[name], spec)
    of, header = _BYTES[name], header or ""
    if not raw:
        return _text(lambda message: shown(of(message, header)), spec)
    if spec:
        raise _wrong(f"{{{text}}}: a field with !raw has no format")
    return lambda message: of(message, header)


def _text(of: Callable[[Message], object], spec: str) -> Part:
    return lambda message: _encoded(format(of(message), spec))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


_TEXTS: dict[str, Callable[[Message], object]] = {
    "topic": lambda message: printable(message.topic),
    "pointer": lambda message: message.pointer,
    "time": lambda message: time_text(message.pointer),
    "headers_problem": lambda message: printable(message.headers_problem),
}


_BYTES: dict[str, Callable[[Message, str], bytes]] = {
    "value": lambda message, _: message.value,
    "key": lambda message, _: message.key or b"",
    "raw_headers": lambda message, _: message.raw_headers,
    "headers": lambda message, header: message.headers.get(header, b""),
}
"""The bytes of fields; empty if a record has none."""


def _unknown(name: str) -> BadParameter:
    close = nearest(name, [field.partition("[")[0] for field in FIELDS])
    meant = next((field for field in FIELDS if close and field.startswith(close)), "")
    advice = f"did you mean {{{meant}}}?" if meant else f"there are {', '.join(FIELDS)}"
    return _wrong(f"there is no field {name!r}: {advice}")


def _wrong(text: str) -> BadParameter:
    return BadParameter(text, param_hint="--template")
