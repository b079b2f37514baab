"""Values as text for people: one line each, without characters that would disturb a terminal."""

from __future__ import annotations

import re

from quothwire import pointer as pointers
from quothwire.text.quantity import format_size, format_span

CONTROLS = (*range(32), *range(127, 160))
"""C0, DEL and C1: a terminal takes them for commands."""
REORDERING = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Characters by which a terminal shows a text in another order than it has, and Unicode's ends of lines."""
_ESCAPED = (
    {code: f"\\x{code:02x}" for code in CONTROLS}
    | {code: f"\\u{code:04x}" for code in REORDERING}
    | {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
)
_LAID_OUT = {code: text for code, text in _ESCAPED.items() if chr(code) not in "\t\n"}
NEEDS_ESCAPE = re.compile(f"[{''.join(map(chr, (*CONTROLS, *REORDERING)))}]")
"""Matches a character that is escaped."""


def shown(value: bytes) -> str:
    """Decode bytes for a terminal, in one line."""
    return printable(value.decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Escape the control characters of a text."""
    return text if text.isprintable() else text.translate(_ESCAPED)


def printable_lines(text: str) -> str:
    """Escape the control characters of a text that was laid out here, in lines and by tabs."""
    return text.translate(_LAID_OUT) if NEEDS_ESCAPE.search(text) else text


def cells_of(text: str) -> int:
    """Count the cells that a text takes on a terminal: 2 for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, width: int) -> str:
    """Append spaces to a text, so that it takes at least so many cells of a terminal."""
    return text + " " * (width - cells_of(text))


def time_or_dash(pointer: int) -> str:
    """Format a pointer's time, a dash for the pointer that stands before everything."""
    return pointers.to_text(pointer) if pointer else "-"


def counted(count: int, one: str, several: str = "") -> str:
    """Format a number of things: 1 segment, 2,000 segments. several: the plural, unless that adds an s."""
    return f"1 {one}" if count == 1 else f"{count:,} {several or f'{one}s'}"


def records_text(count: int) -> str:
    """Format a number of records."""
    return counted(count, "record")


def ordinals_text(first: int, count: int) -> str:
    """Format the ordinals of records; empty if they are not known."""
    return f", ordinals {first} to {first + count - 1}" if first >= 0 and count > 0 else ""


def bytes_text(size: float) -> str:
    """Format a measured number of bytes, with three digits."""
    return format_size(size, rough=True)


def span_text(seconds: float) -> str:
    """Format a measured span of time, short, with the digits that matter: 1h30m, 12.3ms."""
    return format_span(seconds, short=True, rough=True)
