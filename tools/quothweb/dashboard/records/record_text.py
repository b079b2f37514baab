"""The bytes of records as text for people: what they look like is guessed, and never trusted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgpack

PREVIEW_CHARACTERS = 120
PREVIEW_BYTES = 400
SHOWN_BYTES_MAX = 64 * 1024
"""Bytes of a value that one view shows: a browser lays out no more at once."""
PARSED_BYTES_MAX = 1024 * 1024
HEX_WIDTH = 16
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_ESCAPED |= {code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F))}
_ESCAPED |= {code: f"\\u{code:04x}" for code in range(0x2066, 0x206A)}
_LAID_OUT = {code: text for code, text in _ESCAPED.items() if chr(code) not in "\t\n"}


class ValueView(NamedTuple):
    """One view of a value. problem: why the bytes are not of this form; then text is empty.

    left_out: bytes behind those that are shown.
    """

    name: str
    text: str
    problem: str = ""
    left_out: int = 0


def preview(value: bytes | None) -> str:
    """Return the beginning of some bytes in one line."""
    if value is None:
        return ""
    text = value[:PREVIEW_BYTES].decode("utf-8", "backslashreplace").translate(_ESCAPED)
    cut = len(text) > PREVIEW_CHARACTERS or len(value) > PREVIEW_BYTES
    return text[:PREVIEW_CHARACTERS] + ("…" if cut else "")


def headers_preview(headers: Mapping[str, bytes]) -> str:
    """Return headers in one line."""
    text = ", ".join(f"{name.translate(_ESCAPED)}={preview(value)}" for name, value in headers.items())
    return text[:PREVIEW_CHARACTERS] + ("…" if len(text) > PREVIEW_CHARACTERS else "")


def printable(text: str) -> str:
    """Escape the characters of a text that are invisible, or that change the order of others."""
    return text if text.isprintable() else text.translate(_ESCAPED)


def view_of(name: str, value: bytes) -> ValueView:
    """Return one view of a value: text, json, msgpack or hex."""
    return VIEWS[name](value)


def best_view(value: bytes) -> str:
    """Return the name of the view that shows most of a value."""
    if value[:1] in (b"{", b"[") and not _json(value).problem:
        return "json"
    if not _text(value).problem:
        return "text"
    return "hex" if _msgpack(value).problem else "msgpack"


def _text(value: bytes) -> ValueView:
    cut = value[:SHOWN_BYTES_MAX]
    try:
        text = cut.decode("utf-8") if len(cut) == len(value) else _decoded_part(cut)
    except UnicodeDecodeError as problem:
        return ValueView("text", "", f"it is not UTF-8: byte {problem.start} is {value[problem.start]:02x}")
    return ValueView("text", text.translate(_LAID_OUT), "", len(value) - len(cut))


def _decoded_part(cut: bytes) -> str:
    """Decode text that may end inside of a character."""
    for end in range(len(cut), max(0, len(cut) - 4), -1):
        try:
            return cut[:end].decode("utf-8")
        except UnicodeDecodeError as problem:
            if problem.start < len(cut) - 4:
                raise
    return cut.decode("utf-8")


def _json(value: bytes) -> ValueView:
    if len(value) > PARSED_BYTES_MAX:
        return ValueView("json", "", "it is too large to be laid out here")
    try:
        text = json.dumps(json.loads(value), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError) as problem:
        return ValueView("json", "", f"it is no JSON: {str(problem)[:200]}")
    return _cut("json", text)


def _msgpack(value: bytes) -> ValueView:
    if len(value) > PARSED_BYTES_MAX:
        return ValueView("msgpack", "", "it is too large to be laid out here")
    try:
        found = msgpack.unpackb(value, raw=False, strict_map_key=False)
        text = json.dumps(found, indent=2, ensure_ascii=False, default=_other)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as problem:
        return ValueView("msgpack", "", f"it is no MessagePack: {str(problem)[:200] or 'wrong bytes'}")
    return _cut("msgpack", text)


def _other(value: Any) -> str:
    """Return a value that JSON has no form for as text."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _hex(value: bytes) -> ValueView:
    cut = value[: SHOWN_BYTES_MAX // 4]
    lines = []
    for begin in range(0, len(cut), HEX_WIDTH):
        row = cut[begin : begin + HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{begin:08x}  {row.hex(' '):<{3 * HEX_WIDTH - 1}}  {text}")
    return ValueView("hex", "\n".join(lines), "", len(value) - len(cut))


def _cut(name: str, text: str) -> ValueView:
    encoded = text.translate(_LAID_OUT)
    return ValueView(name, encoded[:SHOWN_BYTES_MAX], "", max(0, len(encoded) - SHOWN_BYTES_MAX))


VIEWS: Mapping[str, Callable[[bytes], ValueView]] = {
    "text": _text,
    "json": _json,
    "msgpack": _msgpack,
    "hex": _hex,
}
"""The views of a value, by name."""
